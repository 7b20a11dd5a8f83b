"""Guests of several names, each with everything to itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.errors import HostError, PagecageError
from pagecage.hosts.vm.cache import GuestCache, existing_caches


def test_each_name_has_a_directory_and_the_first_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert GuestCache.of_user().root == tmp_path / "pagecage/vm"
    assert GuestCache.of_user("vm") == GuestCache.of_user()
    assert GuestCache.of_user("old").root == tmp_path / "pagecage/vm-old"
    assert (GuestCache.of_user().name, GuestCache.of_user("old").name) == ("vm", "old")
    assert existing_caches() == []
    for name in ("vm", "old"):
        GuestCache.of_user(name).make()
    assert [cache.name for cache in existing_caches()] == ["vm", "old"]


@pytest.mark.parametrize("name", ["", "../up", "a/b", "Old", "-x", "a" * 31])
def test_a_name_that_is_no_word_is_refused(name: str) -> None:
    with pytest.raises(PagecageError, match="not a valid name for a guest"):
        GuestCache.of_user(name)


def test_a_cache_that_cannot_be_made_is_told_with_its_way_out(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    with pytest.raises(
        HostError, match=r"home/pagecage/vm cannot be created: Not a directory"
    ) as caught:
        GuestCache(tmp_path / "home/pagecage/vm").make()
    assert caught.value.hint == "set XDG_CACHE_HOME to a writable directory"
