"""The kernel cache: sound entries are found, everything else is a miss, and nothing makes it fail."""

import os
import subprocess
import sys
import warnings

import pytest

from tilewright.driver import cache as disk
from tilewright.driver.cache import KernelCache


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "cache", 10_000_000)


def entry_file(cache):
    return next(cache.path.rglob("*.twk"))


def test_put_and_get(cache):
    assert cache.get("k") is None
    assert cache.put("k", b"code", {"symbol": "f"})
    found = cache.get("k")
    assert found.data == b"code"
    assert found.meta == {"symbol": "f"}
    assert (cache.hits, cache.misses) == (1, 1)
    assert cache.get("other") is None
    assert cache.put("k", b"new")
    assert cache.get("k").data == b"new"
    assert KernelCache(cache.path).get("k").data == b"new"


def test_empty_and_big_values(cache):
    cache.put("", b"")
    cache.put("big", bytes(3_000_000))
    assert cache.get("").data == b""
    assert cache.get("big").data == bytes(3_000_000)


def test_keys_of_parts_do_not_run_together():
    assert KernelCache.key("ab", "c") != KernelCache.key("a", "bc")
    assert KernelCache.key("a") != KernelCache.key("a", "")


@pytest.mark.parametrize("damage", ["cut", "flip", "grow", "empty", "foreign"])
def test_damaged_entries_are_misses_and_go_away(cache, damage):
    cache.put("k", b"some code", {"symbol": "f"})
    file = entry_file(cache)
    blob = bytearray(file.read_bytes())
    if damage == "cut":
        blob = blob[:-3]
    elif damage == "flip":
        blob[-2] ^= 1
    elif damage == "grow":
        blob += b"x"
    elif damage == "empty":
        blob = bytearray()
    else:
        blob = bytearray(b"not a cache entry at all, but long enough to have a head")
    file.write_bytes(blob)
    assert cache.get("k") is None
    assert not file.exists()
    cache.put("k", b"again")
    assert cache.get("k").data == b"again"


def test_a_key_whose_hash_collides_is_a_miss(cache, monkeypatch):
    cache.put("k", b"x")
    file = entry_file(cache)
    monkeypatch.setattr(cache, "_file", lambda key: file)
    assert cache.get("another") is None


def test_info_and_clear(cache):
    for k in range(5):
        cache.put(f"k{k}", bytes(1000))
    info = cache.info()
    assert info.entries == 5
    assert 5000 < info.bytes < 7000
    assert info.path == str(cache.path)
    (cache.path / "note.txt").write_text("not ours")
    assert cache.clear().entries == 5
    assert cache.info().entries == 0
    assert cache.get("k1") is None
    assert (cache.path / "note.txt").exists()
    assert cache.put("k1", b"x")


def test_least_recently_used_go_first(tmp_path):
    cache = KernelCache(tmp_path, 100_000)
    for k in range(9):
        cache.put(f"k{k}", bytes(10_000))
        os.utime(cache._file(f"k{k}"), (1000 + k, 1000 + k))
    assert cache.get("k0") is not None  # freshens it
    cache.put("k9", bytes(10_000))
    cache.put("k10", bytes(10_000))
    assert cache.info().bytes <= 80_000 + 11_000
    assert cache.get("k0") is not None
    assert cache.get("k1") is None
    assert cache.get("k10") is not None


def test_unwritable_place_warns_once(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = KernelCache(blocked / "cache")
    with pytest.warns(RuntimeWarning, match="cannot write its kernel cache in .*TILEWRIGHT_CACHE_DIR"):
        assert not cache.put("k", b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cache.put("k", b"x")
    assert cache.get("k") is None
    assert cache.info().entries == 0


def test_no_space_leaves_nothing_behind(cache, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        assert not cache.put("k", b"x")
    monkeypatch.undo()
    assert [p for p in cache.path.rglob("*") if p.is_file()] == []


def test_leftovers_of_killed_writers_are_removed(cache):
    cache.put("k", b"x")
    stale = entry_file(cache).parent / ".tmp-stale"
    stale.write_bytes(b"half")
    os.utime(stale, (1000, 1000))
    fresh = entry_file(cache).parent / ".tmp-fresh"
    fresh.write_bytes(b"half")
    assert cache.info().entries == 1
    assert not stale.exists()
    assert fresh.exists()


def test_two_processes_write_at_once(tmp_path):
    code = (
        "import sys\nfrom tilewright.driver.cache import KernelCache\nc = KernelCache(sys.argv[1])\n"
        "for r in range(30):\n"
        "    for k in range(20):\n"
        "        e = c.get(f'k{k}')\n"
        "        assert e is None or e.data == bytes([k]) * (1000 + k), 'torn'\n"
        "        c.put(f'k{k}', bytes([k]) * (1000 + k))\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for child in children:
        _, err = child.communicate()
        assert child.returncode == 0, err
    assert KernelCache(tmp_path).info().entries == 20


def test_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "here"))
    first = disk.default()
    assert first.path == tmp_path / "here"
    assert disk.default() is first
    first.put("k", b"x")
    assert disk.info().entries == 1
    assert disk.clear().entries == 1
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "off")
    off = disk.default()
    assert not off.put("k", b"x")
    assert off.get("k") is None
    assert not off.info().enabled
    assert off.clear().entries == 0
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform.startswith("linux"):
        assert disk.cache_dir() == tmp_path / "xdg" / "tilewright"
    monkeypatch.setenv("TILEWRIGHT_CACHE_BYTES", "12345")
    assert disk.default().max_bytes == 12345
    monkeypatch.setenv("TILEWRIGHT_CACHE_BYTES", "lots")
    with pytest.warns(UserWarning, match="TILEWRIGHT_CACHE_BYTES"):
        assert disk.default().max_bytes == 2_000_000_000
