"""Controllers that come with the package are used as they were shipped, or not at all."""

import hashlib

import pytest

from esper.controller import shipped
from esper.controller.shipped import SHIPPED, DamagedController, shipped_file


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that ships one controller."""
    (tmp_path / "weights").mkdir()
    file = tmp_path / "weights" / "tamiyo-test.pt"
    file.write_bytes(b"weights")
    monkeypatch.setattr(shipped.resources, "files", lambda package: tmp_path)
    monkeypatch.setitem(SHIPPED, "tamiyo-test", hashlib.sha256(b"weights").hexdigest())
    return file


def test_a_shipped_controller_is_found(package):
    assert shipped_file("tamiyo-test") == package


def test_every_controller_that_is_named_is_there_with_its_sum():
    for name in SHIPPED:
        assert shipped_file(name).is_file()


@pytest.mark.parametrize("content", [b"", b"weight", b"weights ", b"Weights"])
def test_a_controller_that_is_not_what_it_was_is_refused(package, content):
    package.write_bytes(content)
    found = hashlib.sha256(content).hexdigest()
    with pytest.raises(DamagedController, match=f"has the SHA-256 {found}, not .*; install this package again"):
        shipped_file("tamiyo-test")


def test_a_controller_that_is_gone_is_refused(package):
    package.unlink()
    with pytest.raises(
        DamagedController, match=r"tamiyo-test\.pt cannot be read \(No such file or directory\); install"
    ):
        shipped_file("tamiyo-test")
