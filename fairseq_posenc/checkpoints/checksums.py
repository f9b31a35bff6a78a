"""Verifies the checksums in files of torch, which torch itself writes but does not verify."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError


class Checksums:
    """The checksums in one file."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.known: set[tuple[int, int]] = set()
        if zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as archive:
                self.known = {(record.file_size, record.CRC) for record in archive.infolist() if record.CRC}

    def verify(self, name: str, value: object) -> None:
        """Verifies a tensor as it was loaded from the file.

        Raises:
            CheckpointError: no record of the file has the size and the checksum of the tensor's memory.
        """
        if not self.known or not isinstance(value, Tensor) or not value.numel():
            return  # files from before torch 1.6, or written without checksums, have none
        storage = value.untyped_storage()
        data: Any = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        if (storage.nbytes(), zlib.crc32(data)) not in self.known:
            raise CheckpointError(
                f"{self.source} is damaged: {name} does not match its checksum; copy it again or use another "
                "checkpoint."
            )

    def verify_all(self, name: str, value: object) -> None:
        """Verifies every tensor in nested dictionaries and lists; CheckpointError as :meth:`verify`."""
        if isinstance(value, dict):
            for key, inner in value.items():
                self.verify_all(f"{name}.{key}" if name else str(key), inner)
        elif isinstance(value, (list, tuple)):
            for number, inner in enumerate(value):
                self.verify_all(f"{name}.{number}", inner)
        else:
            self.verify(name, value)
