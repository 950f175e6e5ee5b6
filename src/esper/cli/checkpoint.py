"""`esper checkpoint`."""

import hashlib
from pathlib import Path
from typing import Literal

import tyro

from esper.cli.console import DONE
from esper.rl import CHECKPOINT_VERSION, export_checkpoint, load_checkpoint, upgrade_checkpoint


def checkpoint(argv: list[str]) -> int:
    """Show, upgrade or export a checkpoint."""

    def checkpoint(
        what: tyro.conf.Positional[Literal["show", "upgrade", "export"]],
        file: tyro.conf.Positional[Path],
        out: Path = Path("controller.pt"),
    ) -> None:
        """Show a checkpoint, rewrite one of an older version in place, or write what is needed to play to a small file.

        Args:
            what: show, upgrade or export.
            file: The checkpoint.
            out: Where to export to.
        """
        if what == "export":
            export_checkpoint(file, out)
            print(f"{out}: {out.stat().st_size:,} bytes, SHA-256 {hashlib.sha256(out.read_bytes()).hexdigest()}")
        elif what == "upgrade":
            found = upgrade_checkpoint(file)
            done = "upgraded" if found != CHECKPOINT_VERSION else "which is the newest; nothing to do"
            print(f"{file}: version {found}, {done}")
        else:
            _show(file)

    tyro.cli(checkpoint, args=argv, prog="esper checkpoint")
    return DONE


def _show(file: Path) -> None:
    content = load_checkpoint(file)
    print(f"{file}: {sum(weight.numel() for weight in content.weights.values()):,} weights")
    for title, values in (("counters", content.counters), ("network", content.schema), ("beside", content.extra)):
        plain = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
        print(f"{title}: " + ", ".join(f"{name} {value}" for name, value in plain.items()))
