"""The disk cache of compiled kernels: a key (text) leads to bytes and a little metadata.

One file an entry, named by the SHA-256 of its key, with a checksum over everything: what is truncated, damaged or of
another version counts as missing. Files appear by a rename, so that processes which write at the same time never see half
of one. Reading an entry freshens its time; when the cache outgrows its bound (2 GB; `TILEWRIGHT_CACHE_BYTES`), the entries
unused for longest go. The cache never fails a compilation: where it cannot write (no space, no permission) it warns once
and goes on without.

`TILEWRIGHT_CACHE_DIR` names the directory; `off` switches the cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import sys
import tempfile
import threading
import time
import warnings
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["CacheInfo", "Entry", "KernelCache", "cache_dir", "clear", "default", "info"]

_MAGIC = b"TWKCACH1"
_HEAD = struct.Struct("<8sIIQ")  # magic, checksum, length of the metadata, length of the data
_SUFFIX = ".twk"
_DEFAULT_BYTES = 2_000_000_000
_FRESH_SECONDS = 3600.0  # an entry's time is written again at most this often
_STALE_TEMP_SECONDS = 3600.0


@dataclass(frozen=True)
class Entry:
    """What the cache holds for a key."""

    data: bytes
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheInfo:
    """The state of a cache: number of entries, their bytes, the bound, the directory."""

    entries: int
    bytes: int
    max_bytes: int
    path: str
    enabled: bool = True

    def to_json(self) -> dict[str, Any]:
        """As a dictionary for machines."""
        return dict(self.__dict__)


class KernelCache:
    """A cache in `path` (None: switched off; everything misses). `hits` and `misses` count look-ups of this process."""

    def __init__(self, path: str | os.PathLike[str] | None, max_bytes: int | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self.max_bytes = max_bytes if max_bytes is not None else _bound()
        self.hits = 0
        self.misses = 0
        self._estimate: int | None = None
        self._writable = path is not None
        self._lock = threading.Lock()

    @staticmethod
    def key(*parts: str) -> str:
        """One key of several parts, none of which can run into the next."""
        return "\0".join(f"{len(p)}:{p}" for p in parts)

    def _file(self, key: str) -> Path:
        assert self.path is not None
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.path / name[:2] / (name[2:] + _SUFFIX)

    def get(self, key: str) -> Entry | None:
        """The entry of `key`, or None if there is no sound one."""
        entry = None if self.path is None else self._read(self._file(key), key)
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
        return entry

    def _read(self, file: Path, key: str) -> Entry | None:
        try:
            with open(file, "rb") as f:
                age = time.time() - os.fstat(f.fileno()).st_mtime
                blob = f.read()
        except OSError:
            return None
        entry = _decode(blob, key)
        try:
            if entry is None:
                os.unlink(file)
            elif age > _FRESH_SECONDS:
                os.utime(file)
        except OSError:
            pass  # a cache that may only be read is still of use
        return entry

    def put(self, key: str, data: bytes, meta: dict[str, Any] | None = None) -> bool:
        """Keep `data` and `meta` (JSON values) under `key`. False where that was not possible; the first time it warns."""
        if self.path is None or not self._writable:
            return False
        file = self._file(key)
        blob = _encode(key, data, meta or {})
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_atomically(file, blob)
        except OSError as e:
            self._writable = False
            warnings.warn(
                f"tilewright cannot write its kernel cache in {self.path} ({e.strerror or e}); compiling goes on without. "
                "TILEWRIGHT_CACHE_DIR names another directory, or `off`",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
        self._account(len(blob))
        return True

    def _account(self, size: int) -> None:
        with self._lock:
            if self._estimate is None:
                self._estimate = sum(s for _, s, _ in self._scan())
            else:
                self._estimate += size
            if self._estimate > self.max_bytes:
                self._evict()

    def _scan(self) -> list[tuple[float, int, str]]:
        """(time of last use, bytes, path) of every entry; leftovers of killed writers are removed on the way."""
        found: list[tuple[float, int, str]] = []
        now = time.time()
        try:
            folders = [d.path for d in os.scandir(self.path) if d.is_dir(follow_symlinks=False) and len(d.name) == 2]
        except OSError:
            return found
        for folder in folders:
            try:
                files = list(os.scandir(folder))
            except OSError:
                continue
            for f in files:
                try:
                    status = f.stat(follow_symlinks=False)
                    if f.name.endswith(_SUFFIX):
                        found.append((status.st_mtime, status.st_size, f.path))
                    elif f.name.startswith(".tmp-") and now - status.st_mtime > _STALE_TEMP_SECONDS:
                        os.unlink(f.path)
                except OSError:
                    continue
        return found

    def _evict(self) -> None:
        """Remove the entries unused for longest until a fifth of the bound is free."""
        entries = sorted(self._scan())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.max_bytes * 4 // 5:
                break
            try:
                os.unlink(path)
            except OSError:
                continue
            total -= size
        self._estimate = total

    def info(self) -> CacheInfo:
        """Entries, bytes, bound and directory."""
        entries = self._scan() if self.path is not None else []
        total = sum(size for _, size, _ in entries)
        return CacheInfo(len(entries), total, self.max_bytes, str(self.path or "off"), self.path is not None)

    def clear(self) -> CacheInfo:
        """Remove every entry; what was there. Files that are not the cache's are left alone."""
        before = self.info()
        for _, _, path in self._scan() if self.path is not None else []:
            try:
                os.unlink(path)
            except OSError:
                continue
        if self.path is not None:
            _remove_empty_folders(self.path)
        self._estimate = None
        return before


def _encode(key: str, data: bytes, meta: dict[str, Any]) -> bytes:
    text = json.dumps({"key": key, "meta": meta}, separators=(",", ":")).encode()
    checksum = zlib.crc32(data, zlib.crc32(text))
    return _HEAD.pack(_MAGIC, checksum, len(text), len(data)) + text + data


def _decode(blob: bytes, key: str) -> Entry | None:
    if len(blob) < _HEAD.size:
        return None
    magic, checksum, n_text, n_data = _HEAD.unpack_from(blob)
    if magic != _MAGIC or len(blob) != _HEAD.size + n_text + n_data:
        return None
    text = blob[_HEAD.size : _HEAD.size + n_text]
    data = blob[_HEAD.size + n_text :]
    if zlib.crc32(data, zlib.crc32(text)) != checksum:
        return None
    head = json.loads(text)
    return Entry(data, head["meta"]) if head["key"] == key else None


def _write_atomically(file: Path, blob: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(blob)
        os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _remove_empty_folders(path: Path) -> None:
    for folder in path.glob("??"):
        try:
            folder.rmdir()
        except OSError:
            continue


def _bound() -> int:
    text = os.environ.get("TILEWRIGHT_CACHE_BYTES", "").strip()
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text:
        warnings.warn(
            f"TILEWRIGHT_CACHE_BYTES is {text!r}, not a positive number; using {_DEFAULT_BYTES}", stacklevel=3
        )
    return _DEFAULT_BYTES


def cache_dir() -> Path | None:
    """Where the cache lives: TILEWRIGHT_CACHE_DIR (None if it says `off`), else the platform's place for caches."""
    chosen = os.environ.get("TILEWRIGHT_CACHE_DIR", "").strip()
    if chosen.lower() == "off":
        return None
    if chosen:
        return Path(chosen).expanduser()
    try:
        home = Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"tilewright-cache-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "tilewright" / "Cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "tilewright"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "tilewright"


_CACHES: dict[tuple[str, int], KernelCache] = {}


def default() -> KernelCache:
    """The cache that the environment names now; the same object as long as it names the same."""
    path = cache_dir()
    key = (str(path), _bound())
    found = _CACHES.get(key)
    if found is None:
        found = _CACHES[key] = KernelCache(path, key[1])
    return found


def info() -> CacheInfo:
    """The state of the default cache."""
    return default().info()


def clear() -> CacheInfo:
    """Empty the default cache; what was there."""
    return default().clear()
