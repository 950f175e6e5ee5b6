"""Imports go one way."""

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "esper"

BELOW = {"contracts", "checked", "growth", "rewards", "environment", "rl", "controller", "telemetry"}
MAY_IMPORT = {
    "contracts": set(),
    "checked": {"contracts"},
    "rl": set(),
    "growth": {"contracts", "checked"},
    "rewards": {"contracts"},
    "telemetry": {"contracts", "checked"},
    "environment": {"contracts", "checked", "growth", "rewards"},
    "controller": {"contracts", "checked", "rl"},
    "runs": BELOW,
    "gardener": {"contracts", "growth", "environment", "controller", "telemetry"},
    "dashboard": {"contracts", "telemetry"},
    "cli": BELOW | {"runs", "gardener", "dashboard"},
    "__main__": {"cli"},
    "__init__": {"growth", "gardener"},
}
FILES = sorted(SOURCE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "esper" else {node.module}
            )
    return names


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_package_imports_only_what_the_architecture_allows():
    """R0-S1, R2-concern1."""
    for path in FILES:
        package = package_of(path)
        assert package in MAY_IMPORT, f"'{package}' is not in the architecture's table"
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("esper.")}
        assert ours - {package} <= MAY_IMPORT[package], path


def test_no_file_is_a_drawer_for_odds_and_ends():
    assert not {path.stem for path in FILES} & {"utils", "util", "helpers", "common", "misc"}


def test_contracts_and_rewards_import_the_standard_library_only():
    for path in (*(SOURCE / "contracts").glob("*.py"), *(SOURCE / "rewards").glob("*.py")):
        foreign = {name.split(".")[0] for name in imports(path)} - sys.stdlib_module_names - {"esper"}
        assert not foreign, f"{path} imports {foreign}"


def test_every_package_says_in_one_sentence_what_it_is():
    for path in SOURCE.glob("*/__init__.py"):
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()
        assert first, path
        assert first[0].endswith("."), path
