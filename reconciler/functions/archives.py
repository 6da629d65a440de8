"""Files of tar archives, in which charts and the layers of images come: read as a stream, within limits."""

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, Final, cast

from reconciler.base.errors import RefusedError
from reconciler.base.text import plural, visible
from reconciler.names.objects import file_path_error
from reconciler.policy import Limits

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_HEADER_BYTES: Final = 8 << 10
"""Size of all headers of one file: an extended one with a path of 4 KiB has room."""
_CHUNK: Final = 1 << 16
_LONGEST_TEXT: Final = 500
_FILES: Final = "limits.packageFiles"
_BYTES: Final = "limits.packageBytes"
_UNPACKED: Final = "registries.unpackedBytes"


class NoArchiveError(RefusedError):
    """A file is no archive, or not the whole of one."""


class ArchiveReader:
    """Reads the files of tar archives, plain or packed with gzip; all that one reader reads counts together.

    Nothing is written to disk. Memory is that of the file at hand, and time is proportional to the size.
    tarfile alone reads a header of any size whole, and fills the holes of sparse files.
    """

    def __init__(self, limits: Limits, unpacked_bytes: int | None = None) -> None:
        """Prepare to read the archives of one chart or image.

        Args:
            limits: The limits of a package, which the files keep within.
            unpacked_bytes: How large all archives of an image may be when they are unpacked.
        """
        self._limits = limits
        self._left = {_FILES: limits.package_files, _BYTES: limits.package_bytes}
        if unpacked_bytes is not None:
            self._left[_UNPACKED] = unpacked_bytes
        self._most = dict(self._left)

    def read(
        self,
        file: BinaryIO,
        origin: str,
        is_wanted: Callable[[str], bool] = lambda _: True,
        *,
        drops_base: bool = False,
    ) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of each file that is wanted; the others are skipped.

        Args:
            file: The archive, at its start.
            origin: Where it is from, to begin a message with.
            is_wanted: Tells by its path whether a file is read.
            drops_base: Leave out the first directory of each path.

        Raises:
            NoArchiveError: It is no whole archive.
            RefusedError: It is larger than a limit, or leads out of itself, or a wanted file is none, is
                there twice, or has an invalid name.
        """
        try:
            yield from self._read(file, is_wanted, drops_base=drops_base)
        except _ArchiveError as error:
            raise RefusedError(f"{origin} {error}", hint=error.hint) from None
        except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, LookupError) as error:
            raise NoArchiveError(f"{origin} is no whole archive: {error}") from error

    def _read(
        self, file: BinaryIO, is_wanted: Callable[[str], bool], *, drops_base: bool
    ) -> Iterator[tuple[str, bytes]]:
        start = file.read(len(_ZSTD))
        file.seek(0)
        if start == _ZSTD:
            raise _ArchiveError("is packed with zstd", "Pack it with gzip.")
        packed = gzip.GzipFile(fileobj=file) if start.startswith(_GZIP) else file
        # All of a chart is wanted, so its headers may count with its files.
        stream = _Stream(packed, partial(self._spend, _UNPACKED if _UNPACKED in self._left else _BYTES))
        archive = tarfile.TarFile(
            fileobj=cast("BinaryIO", stream), encoding="utf-8", errors="surrogateescape"
        )
        paths = set[str]()
        while (member := archive.next()) is not None:
            stream.room = _HEADER_BYTES
            # tarfile keeps every member, each with a copy of all extended headers that count for it.
            archive.pax_headers = member.pax_headers = {}
            self._spend(_FILES, 1)
            path, is_directory = member.name.removeprefix("./"), member.isdir()
            leads_out = path.startswith("/") or ".." in path.split("/")
            if (is_directory and path in ("", ".")) or not (leads_out or is_wanted(path)):
                continue
            error = "it leads out of the archive" if leads_out else self._error(path, member)
            if drops_base and not is_directory:
                _, slash, path = path.partition("/")
                error = error or ("" if slash else "it is in no directory")
            if error or path in paths:
                named = visible(member.name[:_LONGEST_TEXT])
                raise _ArchiveError(f"may not hold {named}: {error or 'it is there twice'}")
            if not is_directory:
                paths.add(path)
                if _UNPACKED in self._left:
                    self._spend(_BYTES, member.size)
                yield path, stream.content(member.size)
        if any(stream.last):  # tarfile takes a damaged header for the end
            raise tarfile.ReadError("a header is damaged")
        while stream.take(_CHUNK):
            pass  # at the end gzip compares its checksum

    def _error(self, path: str, member: tarfile.TarInfo) -> str:
        """Return why a member that is wanted is refused, "" if it is not."""
        most = self._limits.package_file_bytes
        if path.encode(errors="ignore").decode() != path:
            return "its name is not UTF-8"
        if not (member.isreg() or member.isdir()):
            return "it is a link" if member.issym() or member.islnk() else "it is no file"
        if member.issparse() or not 0 <= member.size <= most:
            size = plural(member.size, "byte")
            return "it is a sparse file" if member.issparse() else f"it has {size}, and the limit is {most}"
        return file_path_error(path, depth=self._limits.path_depth)

    def _spend(self, setting: str, amount: int) -> None:
        self._left[setting] -= amount
        if self._left[setting] < 0:
            most = self._most[setting]
            what = (
                plural(most, "file") if setting == _FILES else f"{plural(most, 'byte')} when it is unpacked"
            )
            raise _ArchiveError(f"has more than {what}", f"Raise spec.{setting}.")


class _ArchiveError(Exception):
    """An archive is refused; the message follows its origin."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class _Stream:
    """The bytes that tarfile gets: only forwards, and of the headers of one member only a few."""

    def __init__(self, source: BinaryIO | gzip.GzipFile, count: Callable[[int], None]) -> None:
        self._source, self._count = source, count
        self._position = 0
        self.room = _HEADER_BYTES
        self.last = b""

    def tell(self) -> int:
        """Return the number of bytes that were read."""
        return self._position

    def seek(self, position: int) -> None:
        """Skip bytes."""
        if position < self._position:
            raise tarfile.StreamError("the size of a file is negative")
        while position > self._position and self.take(min(position - self._position, _CHUNK)):
            pass

    def read(self, size: int) -> bytes:
        """Return what tarfile asks for: blocks of headers, and the last byte of what it skipped."""
        self.room -= size
        if size < 0 or self.room < 0:
            raise _ArchiveError(f"has more than {_HEADER_BYTES >> 10} KiB of headers for one file")
        self.last = self.take(size)
        return self.last

    def content(self, size: int) -> bytes:
        """Return the content of a file, behind its headers."""
        data = self.take(size)
        if len(data) < size:
            raise EOFError("it ends within a file")
        return data

    def take(self, size: int) -> bytes:
        """Return the next bytes, which are counted; fewer only at the end."""
        data = self._source.read(size)
        self._position += len(data)
        self._count(len(data))
        return data
