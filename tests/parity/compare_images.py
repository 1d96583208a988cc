"""Compares our pixels of JPEG and PNG files, as they are and resized, with Pillow's.

python compare_images.py PATH_OF_DECODED_IMAGES
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

try:
    from PIL import Image
except ImportError:
    print("skipped: Pillow is not installed")
    sys.exit(77)

MODES = {1: "L", 3: "RGB"}
# Height and width of the images, then the target size.
SIZES = [((1, 1), (3, 2)), ((17, 33), (16, 16)), ((64, 48), (31, 65)), ((150, 203), (224, 224))]


def noise(rng, height, width, channels):
    """Slopes and noise: JPEG rounds the one, and keeps little of the other."""
    slope = np.add.outer(np.arange(height), 2 * np.arange(width))[:, :, None] * np.arange(
        1, channels + 1
    )
    return ((slope + rng.integers(0, 60, (height, width, channels))) % 256).astype(np.uint8)


def write_images(folder, rng, size):
    """Images of one size in all the ways in which Pillow writes them."""

    def save(name, image, **options):
        image.save(folder / name, **options)

    gray = Image.fromarray(noise(rng, *size, 1)[:, :, 0])
    color = Image.fromarray(noise(rng, *size, 3))
    alpha = Image.fromarray(noise(rng, *size, 4))
    for quality in (30, 75, 95):
        for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
            for progressive in (False, True):
                name = f"color_{quality}_{subsampling.replace(':', '')}_{progressive}.jpg"
                save(
                    name,
                    color,
                    quality=quality,
                    subsampling=subsampling,
                    progressive=progressive,
                )
    save("gray.jpg", gray)
    save("gray_progressive.jpg", gray, progressive=True)
    save("optimized.jpg", color, optimize=True)
    save("restarts.jpg", color, restart_marker_blocks=3)
    save("rgb.jpg", color, keep_rgb=True)
    save("cmyk.jpg", Image.merge("CMYK", alpha.split()), quality=95)
    turned = Image.Exif()
    turned[0x0112] = 6
    save("turned.jpg", color, exif=turned)
    save("gray.png", gray)
    save("bits.png", gray.convert("1"))
    save("color.png", color)
    save("color_turned.png", color, exif=turned)
    save("alpha.png", alpha)
    save("gray_alpha.png", alpha.convert("LA"))
    save("palette.png", color.quantize(200))
    save("palette_of_2_bits.png", color.quantize(4), bits=2)
    save("palette_transparent.png", color.quantize(9), transparency=3)
    return sorted(folder.iterdir())


def ours(program, what, channels, size, paths):
    done = subprocess.run(
        [program, what, str(channels), *map(str, size), *map(str, paths)],
        capture_output=True,
        timeout=60,
        check=True,
    )
    rest = done.stdout
    images = []
    while rest:
        line, rest = rest.split(b"\n", 1)
        shape = tuple(map(int, line.split()))
        n_bytes = int(np.prod(shape))
        images.append(np.frombuffer(rest[:n_bytes], np.uint8).reshape(shape))
        rest = rest[n_bytes:]
    return images


def covered(image, height, width):
    """As torchvision's Resize and CenterCrop, where height and width are equal."""
    if height * image.width >= width * image.height:
        size = (height * image.width // image.height, height)
    else:
        size = (width, width * image.height // image.width)
    left = round((size[0] - width) / 2)
    top = round((size[1] - height) / 2)
    image = image.resize(size, Image.Resampling.BILINEAR)
    return image.crop((left, top, left + width, top + height))


def pillows(what, channels, size, path):
    with Image.open(path) as file:
        image = file.convert(MODES[channels])
    height, width = size
    if what == "resize":
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    if what == "cover":
        image = covered(image, height, width)
    return np.asarray(image).reshape(image.height, image.width, channels).transpose(2, 0, 1)


def sixteen_bits(program, folder, rng):
    """Pillow cuts values off at 255: ours are the upper 8 of 16 bits."""
    values = rng.integers(0, 1 << 16, (9, 7)).astype(np.uint16)
    path = folder / "sixteen.png"
    Image.fromarray(values).save(path)
    (mine,) = ours(program, "decode", 1, (0, 0), [path])
    return bool((mine[0] == values >> 8).all())


def main():
    program = sys.argv[1]
    rng = np.random.default_rng(1)
    n_equal = 0
    different = []
    for number, (size, other_size) in enumerate(SIZES):
        with tempfile.TemporaryDirectory() as name:
            paths = write_images(Path(name), rng, size)
            for what in ("decode", "resize", "cover"):
                for channels in MODES:
                    images = ours(program, what, channels, other_size, paths)
                    for path, mine in zip(paths, images, strict=True):
                        theirs = pillows(what, channels, other_size, path)
                        if mine.shape == theirs.shape and (mine == theirs).all():
                            n_equal += 1
                        else:
                            different.append((what, channels, size, other_size, path.name))
            if number == 0 and not sixteen_bits(program, Path(name), rng):
                different.append("16 bits")
    for case in different:
        print("different:", case)
    print(f"{n_equal} images equal Pillow's, {len(different)} do not")
    sys.exit(0 if n_equal > 0 and not different else 1)


if __name__ == "__main__":
    main()
