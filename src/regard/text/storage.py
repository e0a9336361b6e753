"""Files and folders that appear whole or not at all.

Everything is written beside its place, forced to disk, and renamed into it. A process that is
killed leaves at most a hidden folder or file that nothing reads.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import StorageError

try:
    import fcntl
except ImportError:  # no file locks on this system: abandoned folders stay until removed by hand
    fcntl = None  # type: ignore[assignment]

LOCK = "writing.lock"


@contextmanager
def storing(what: str | Path) -> Iterator[None]:
    """Turns an `OSError` on the way into a one-line `StorageError` about `what`."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(
            f"cannot write {what}: {reason}; nothing was left half-written"
        ) from None


@contextmanager
def new_file(path: str | Path) -> Iterator[Path]:
    """A path beside `path` to write to; when the block ends well it becomes `path`."""
    path = Path(path)
    with storing(path):
        path = Path(os.path.realpath(path))  # what a link points to is written, the link stays
        if path.exists() and not path.is_file():
            raise StorageError(f"cannot write {path}: it is no ordinary file")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        os.close(handle)
        new = Path(name)
        try:
            yield new
            new.chmod(0o666 & ~_umask())
            _sync(new)
            os.replace(new, path)
            _sync(path.parent)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A fresh folder beside `folder` to write to, removed at the end unless published before."""
    folder = Path(folder)
    with storing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".new", dir=folder.parent))
        new.chmod(0o777 & ~_umask())
        try:
            with open(new / LOCK, "wb") as lock:
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                yield new
        finally:
            shutil.rmtree(new, ignore_errors=True)


def publish(new: Path, folder: Path, same: Callable[[Path], bool], mine: frozenset[str]) -> None:
    """Renames `new` to `folder`, forcing its files to disk first.

    Where `folder` exists already: it stays when ``same(folder)``, and is replaced when it holds
    nothing but files named in `mine`; otherwise `StorageError`.
    """
    for file in new.iterdir():
        if file.name != LOCK:
            _sync(file)
    _sync(new)
    while True:
        try:
            os.rename(new, folder)
        except OSError:
            if not folder.is_dir():
                raise
        else:
            with suppress(FileNotFoundError):
                (folder / LOCK).unlink()
            break
        if same(folder):
            return
        _make_way(folder, mine)
    _sync(folder.parent)


def _make_way(folder: Path, mine: frozenset[str]) -> None:
    with suppress(FileNotFoundError):  # another process made way first
        others = sorted(p.name for p in folder.iterdir() if p.name not in mine | {LOCK})
        if others:
            raise StorageError(
                f"folder {folder} holds other things ({', '.join(others[:3])}); "
                "name a new folder or empty this one"
            )
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".new", dir=folder.parent))
        try:
            os.rename(folder, old / "old")
        finally:
            shutil.rmtree(old, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """Removes what killed writers of `folder` left: their locks are free."""
    if fcntl is None:
        return
    for left in folder.parent.glob(f".{folder.name}.*.new"):
        with suppress(OSError), open(left / LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
