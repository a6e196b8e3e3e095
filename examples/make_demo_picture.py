"""Makes the picture of printed text that `tilewright demo` reads. Needs Pillow and the DejaVu fonts.

python examples/make_demo_picture.py tilewright/cli/demo/page.png
"""

import sys

from PIL import Image, ImageDraw, ImageFont

LINES = [
    ("DejaVuSerif-Bold.ttf", 34, (40, 40), "Models in, native code out"),
    ("DejaVuSans.ttf", 24, (40, 110), "This page was never seen by the network before."),
    ("DejaVuSans.ttf", 24, (40, 160), "Three ONNX models find and read its lines:"),
    ("DejaVuSansMono.ttf", 22, (70, 215), "detection 4.7 MB, direction 0.6 MB,"),
    ("DejaVuSansMono.ttf", 22, (70, 260), "recognition 10.9 MB"),
    ("DejaVuSerif.ttf", 26, (40, 320), "No compiler, no linker, no container."),
    ("DejaVuSans-Bold.ttf", 28, (40, 385), "Total: 3 kernels x 100 = 42.50 EUR"),
]


def main(path: str) -> None:
    image = Image.new("L", (736, 448), 250)
    draw = ImageDraw.Draw(image)
    for font, size, position, text in LINES:
        draw.text(position, text, font=ImageFont.truetype(font, size), fill=25)
    image.save(path, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "page.png")
