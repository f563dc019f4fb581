"""Makes the ONNX files of this folder: denoisers exported by PyTorch, and files that are none.

    python make.py

It needs torch, onnx and onnxscript. The weights are random, of a fixed seed. `NAME.expected` is what PyTorch makes of the
image that `image()` gives, as raw f32; the tests have the same image.
"""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

FOLDER = Path(__file__).parent


def image(*shape):
    """Values from 0 to 1 that any language computes alike."""
    count = int(np.prod(shape))
    values = (np.arange(count, dtype=np.int64) * 37 % 101).astype(np.float32) / np.float32(101)
    return torch.from_numpy(values.reshape(shape))


class Dncnn(nn.Module):
    """Blind: convolutions, and the noise subtracted."""

    def __init__(self, channels, width=8, inputs=None):
        super().__init__()
        self.first = nn.Conv2d(inputs or channels, width, 3, padding=1)
        self.middle = nn.Sequential(
            nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        self.channels = channels

    def forward(self, noisy):
        return noisy[:, : self.channels] - self.last(self.middle(self.first(noisy)))


class Block(nn.Module):
    """Attention in windows of 8 × 8 pixels, and a small network for each pixel: half of a block of Swin."""

    def __init__(self, width, heads, shift):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.heads, self.shift = heads, shift

    def forward(self, x):
        batch, height, width, channels = x.shape
        y = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2))
        y = y.reshape(batch, height // 8, 8, width // 8, 8, channels).permute(0, 1, 3, 2, 4, 5)
        y = y.reshape(-1, 64, channels)
        q, k, v = self.qkv(y).reshape(-1, 64, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1) * (channels // self.heads) ** -0.5, dim=-1)
        y = self.out((weights @ v).transpose(1, 2).reshape(-1, 64, channels))
        y = y.reshape(batch, height // 8, width // 8, 8, 8, channels).permute(0, 1, 3, 2, 4, 5)
        y = torch.roll(y.reshape(batch, height, width, channels), (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    """A small transformer of images, which is told one noise level for each image."""

    def __init__(self, channels=3, width=16):
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.level = nn.Linear(1, width)
        self.blocks = nn.Sequential(Block(width, 2, 0), Block(width, 2, 4))
        self.last = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, noisy, sigma):
        x = self.first(noisy).permute(0, 2, 3, 1) + self.level(sigma[:, None])[:, None, None]
        return noisy - self.last(self.blocks(x).permute(0, 3, 1, 2))


class WithMap(nn.Module):
    """A network with an input of its own for the map."""

    def __init__(self, channels):
        super().__init__()
        self.inner = Dncnn(channels, inputs=channels + 1)

    def forward(self, noisy, noise_map):
        return self.inner(torch.cat([noisy, noise_map], 1))


class Last(nn.Module):
    """Channels last, and white is 255."""

    def __init__(self):
        super().__init__()
        self.inner = Dncnn(3)

    def forward(self, noisy):
        return self.inner(noisy.permute(0, 3, 1, 2) / 255).permute(0, 2, 3, 1) * 255


def export(name, model, inputs, names, dynamic):
    model = model.eval()
    torch.onnx.export(
        model,
        tuple(inputs),
        FOLDER / f"{name}.onnx",
        input_names=names,
        output_names=["denoised"],
        dynamic_shapes=dynamic,
        external_data=False,
        dynamo=True,
    )
    # What the exporter says of where in the Python source a node comes from is most of such a small file.
    file = onnx.load(FOLDER / f"{name}.onnx")
    for node in file.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in [*file.graph.value_info, *file.graph.input, *file.graph.output, *file.graph.initializer]:
        del value.metadata_props[:]
    del file.graph.metadata_props[:]
    del file.metadata_props[:]
    onnx.save(file, FOLDER / f"{name}.onnx")


def expect(name, result):
    result.detach().float().contiguous().numpy().astype("<f4").tofile(FOLDER / f"{name}.expected")


def denoisers():
    batch, height, width = (torch.export.Dim(name) for name in ("batch", "height", "width"))
    free = {0: batch, 2: height, 3: width}

    torch.manual_seed(1)
    model = Dncnn(1).eval()
    export("dncnn", model, [image(2, 1, 40, 48)], ["noisy"], [free])
    expect("dncnn", model(image(1, 1, 37, 50)))

    torch.manual_seed(2)
    model = Swin().eval()
    eights = {0: batch, 2: 8 * torch.export.Dim("rows"), 3: 8 * torch.export.Dim("columns")}
    arguments = [image(2, 3, 40, 48), torch.tensor([0.1, 0.2])]
    export("swin", model, arguments, ["noisy", "sigma"], [eights, {0: batch}])
    expect("swin", model(image(1, 3, 40, 48), torch.tensor([0.1])))

    torch.manual_seed(3)
    model = Dncnn(3, inputs=4).eval()
    export("fixed", model, [image(1, 4, 32, 32)], ["noisy"], None)
    with_level = torch.cat([image(1, 3, 32, 32), torch.full((1, 1, 32, 32), 0.1)], 1)
    expect("fixed", model(with_level))
    # The whole of a larger image, of which windows can only come near.
    whole = torch.cat([image(1, 3, 50, 75), torch.full((1, 1, 50, 75), 0.1)], 1)
    expect("fixed-large", model(whole))

    torch.manual_seed(4)
    model = WithMap(3).eval().half()
    arguments = [image(2, 3, 40, 48).half(), image(2, 1, 40, 48).half()]
    export("half", model, arguments, ["noisy", "noise_map"], [free, free])
    expect("half", model.float()(image(1, 3, 37, 50).half().float(), torch.full((1, 1, 37, 50), 0.1).half().float()))

    torch.manual_seed(5)
    model = Last().eval()
    last = {0: batch, 1: height, 2: width}
    export("last", model, [image(2, 40, 48, 3)], ["noisy"], [last])
    expect("last", model(image(1, 3, 37, 50).permute(0, 2, 3, 1) * 255).permute(0, 3, 1, 2) / 255)


def tensor(name, sizes, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, sizes)


def save(name, nodes, inputs, outputs, constants=(), opset=17):
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    (FOLDER / "wrong" / f"{name}.onnx").write_bytes(model.SerializeToString())


def wrong():
    (FOLDER / "wrong").mkdir(exist_ok=True)
    any_size = ["batch", 1, "height", "width"]
    same = helper.make_node("Identity", ["x"], ["y"])
    relu = helper.make_node("Relu", ["x"], ["y"])
    scale = numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "scale")
    times = helper.make_node("Mul", ["x", "scale"], ["y"])

    pool = [helper.make_node("GlobalAveragePool", ["x"], ["p"]), helper.make_node("Flatten", ["p"], ["y"])]
    save("no-image-output", pool, [tensor("x", any_size)], [tensor("y", ["batch", 1])])
    add = helper.make_node("Add", ["x", "z"], ["y"])
    save("two-images", [add], [tensor("x", any_size), tensor("z", any_size)], [tensor("y", any_size)])
    three = [tensor(name, any_size) for name in ("x", "z", "sigma")]
    total = helper.make_node("Sum", ["x", "z", "sigma"], ["y"])
    save("three-inputs", [total], three, [tensor("y", any_size)])
    weight = numpy_helper.from_array(np.ones((5, 3, 1, 1), np.float32), "w")
    conv = helper.make_node("Conv", ["x", "w"], ["y"])
    sides = ["batch", 3, "height", "width"], ["batch", 5, "height", "width"]
    save("wrong-channels", [conv], [tensor("x", sides[0])], [tensor("y", sides[1])], [weight])
    save("unknown-operations", [relu], [tensor("x", any_size)], [tensor("y", any_size)], opset=999)
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    resize = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")
    save("larger-output", [resize], [tensor("x", any_size)], [tensor("y", ["batch", 1, "h", "w"])], [scales])
    whole = TensorProto.INT64
    save("integers", [same], [tensor("x", any_size, whole)], [tensor("y", any_size, whole)])
    four = [4, 1, "height", "width"]
    save("four-at-once", [relu], [tensor("x", four)], [tensor("y", four)])
    huge = [1, 1, 1 << 40, 1 << 40]
    save("huge-image", [relu], [tensor("x", huge)], [tensor("y", huge)])
    liar = TensorProto(name="scale", data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 20], raw_data=b"\0" * 16)
    save("huge-weights", [times], [tensor("x", any_size)], [tensor("y", any_size)], [liar])
    away = TensorProto(name="scale", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    away.external_data.add(key="location", value="../../../../../etc/passwd")
    save("weights-elsewhere", [times], [tensor("x", any_size)], [tensor("y", any_size)], [away])
    shape = numpy_helper.from_array(np.array([1 << 36], np.int64), "shape")
    filled = [helper.make_node("ConstantOfShape", ["shape"], ["big"]), helper.make_node("ReduceSum", ["big"], ["s"]),
              helper.make_node("Add", ["x", "s"], ["y"])]
    save("huge-values", filled, [tensor("x", any_size)], [tensor("y", any_size)], [shape])
    zero = numpy_helper.from_array(np.zeros((1, 1, 1, 1), np.float32), "zero")
    nodes = [helper.make_node("Mul", ["x", "zero"], ["n"]), helper.make_node("Div", ["n", "n"], ["y"])]
    save("not-finite", nodes, [tensor("x", any_size)], [tensor("y", any_size)], [zero])
    save("unknown-node", [helper.make_node("Denoise", ["x"], ["y"])], [tensor("x", any_size)], [tensor("y", any_size)])
    whole_file = (FOLDER / "dncnn.onnx").read_bytes()
    (FOLDER / "wrong" / "truncated.onnx").write_bytes(whole_file[: len(whole_file) // 2])
    (FOLDER / "wrong" / "no-onnx.onnx").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(64)))
    (FOLDER / "wrong" / "empty.onnx").write_bytes(b"")


denoisers()
wrong()
