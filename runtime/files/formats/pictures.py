"""Pictures that Pillow decodes: PNG, JPEG, WebP and BMP. They are decoded as a whole, and boxes are read from that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from brickrt.graph.errors import InputError
from brickrt.runtime.files.boxes import Extents, check_box, nonempty, slices, usual_axis
from brickrt.runtime.files.descriptor import open_file
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.formats.box_files import FileToRead
from brickrt.runtime.files.identity import digest, file_identity

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

RGB, GREY = 3, ("1", "L")  # channels, and Pillow's modes of one
GREY_16_BITS = "I;16"  # Pillow's mode
READ_BYTES = 1 << 20  # of a file that are decoded at a time, without Python between them
ORIENTATION, ON_ITS_SIDE = 0x112, 5  # the tag of cameras, and the least value that exchanges height and width
DECODING = 8  # bytes of a pixel that Pillow takes while it decodes and turns a picture of four each


class PictureSource:
    """A `BoxSource` of an upright picture, [height, width] or [height, width, 3], decoded when it is first read."""

    chunks: Extents | None = None

    def __init__(self, path: Path) -> None:
        with readable(path) as image:
            shape, self.dtype = _type_of(image)
        self.name, self._path = str(path), path
        self.shape = nonempty(self.name, shape)
        self.axis = usual_axis(self.shape)
        self._pixels: np.ndarray | None = None

    @property
    def buffer_bytes(self) -> int:
        """What all pixels take, and decoding them."""
        height, width, *channels = self.shape
        return height * width * (self.dtype.itemsize * (channels[0] if channels else 1) + DECODING)

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Copies the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        if self._pixels is None:
            self._pixels = self._decoded()
        out[...] = self._pixels[slices(lo, out.shape)]

    def _decoded(self) -> np.ndarray:
        with readable(self._path) as image:
            found = _type_of(image)
            turned = upright(self._path, image)
        if found != (self.shape, self.dtype):
            raise InputError(f"{self.name}: changed while it was read: run again")
        wanted = "L" if len(self.shape) == 2 else "RGB"
        if turned.mode != wanted and self.dtype == np.uint8:
            turned = turned.convert(wanted)
        return np.asarray(turned, self.dtype)

    def identity(self) -> str:
        """Digest of the file's size, the time of its last change and samples of its content."""
        fd = open_file(self._path)
        try:
            return digest([file_identity(fd, self._path)])
        finally:
            os.close(fd)

    def close(self) -> None:
        """Gives up the pixels."""
        self._pixels = None


def picture_source(asked: FileToRead) -> PictureSource:
    """A source of a picture. Raises InputError for what Pillow does not read."""
    needed("PIL", str(asked.path), "images")
    return PictureSource(asked.path)


def _type_of(image: Image) -> tuple[Extents, np.dtype]:
    deep = image.mode.startswith(GREY_16_BITS)
    size = upright_size(image)
    return size if deep or image.mode in GREY else (*size, RGB), np.dtype(np.uint16 if deep else np.uint8)


@contextmanager
def readable(path: Path) -> Iterator[ImageFile]:
    """The image, of which the header is read. Raises InputError where this, or what is done to the image, fails."""
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # the file is the user's own, and large images are what brickrt is for
    try:
        with Image.open(path) as image:
            image.decodermaxblock = READ_BYTES
            yield image
    except UnidentifiedImageError as e:
        raise InputError(f"{path}: is no image that can be read: save it again as .png or .jpg") from e
    except (OSError, SyntaxError, ValueError, EOFError) as e:
        raise InputError(f"{path}: is damaged ({e}): save it again") from e


def upright(path: Path, image: ImageFile) -> Image:
    """The image decoded, and turned as cameras note it."""
    from PIL import ImageOps

    image.load()
    turned = ImageOps.exif_transpose(image)
    if turned.mode.startswith(("I", "F")) and not turned.mode.startswith(GREY_16_BITS):
        raise InputError(f"{path}: has more than 16 bits per channel: convert it, or give a .npy file")
    return turned


def upright_size(image: Image) -> tuple[int, int]:
    """Height and width once the picture is turned as its header says; what PNG files have behind their pixels is not
    looked for, as Pillow would decode them."""
    there = image.format != "PNG" or "exif" in image.info
    turned = there and image.getexif().get(ORIENTATION, 1) >= ON_ITS_SIDE
    return (image.width, image.height) if turned else (image.height, image.width)
