"""The denoiser: deepinv's DRUNet, small, and where its weights start.

Parameter names and shapes are deepinv's, so the exported weights load there and in the engine.
Only the start is ours: a DRUNet has no skip from its input to its output, and left to itself it
spends its first thousand steps learning to copy. What is learnt can also be handed on: from colour
to gray, from a narrow network to a wider one, and from gray images to volumes.
"""

import torch
from deepinv.models import DRUNet

# Multiples of 8, which fill the engine's vectors.
CHANNELS = [16, 32, 64, 128]
BLOCKS = 2
SIGMA_MAX = 75 / 255
IMAGE_CHANNELS = {"color": 3, "gray": 1, "volume": 1}


def drunet(kind, channels=CHANNELS, blocks=BLOCKS):
    count = IMAGE_CHANNELS[kind]
    network = DRUNet(
        in_channels=count,
        out_channels=count,
        nc=list(channels),
        nb=blocks,
        pretrained=None,
        dim=3 if kind == "volume" else 2,
    )
    return keep_depth(network) if kind == "volume" else network


def keep_depth(network):
    """Turn a DRUNet for volumes into one whose scales have the depth of the volume.

    Its kernels are those of a DRUNet for images, which lie in the slices, but for the first of each
    block at the two finest scales, which are 3 slices deep. The engine has it as `Depth::Kept`.
    """
    for name, module in list(network.named_modules()):
        if not isinstance(module, (torch.nn.Conv3d, torch.nn.ConvTranspose3d)):
            continue
        size, stride = module.kernel_size[1], module.stride[1]
        fine = name.startswith(("m_down1", "m_down2", "m_up1", "m_up2")) and size == 3
        # What goes up to a scale has its channels; the blocks that follow are that scale's.
        deep = fine and name.endswith("res.0")
        parent, _, own = name.rpartition(".")
        replacement = type(module)(
            module.in_channels,
            module.out_channels,
            (3 if deep else 1, size, size),
            (1, stride, stride),
            (1 if deep else 0, module.padding[1], module.padding[2]),
            bias=False,
        )
        setattr(network.get_submodule(parent) if parent else network, own, replacement)
    return network


def memory_format(kind):
    return torch.channels_last_3d if kind == "volume" else torch.channels_last


@torch.no_grad()
def start_from_identity(network, generator):
    """Ordinary random weights, but for a path through the outermost skip that copies the image.

    The first channels after the head are the image itself, and the tail reads them; what the inner
    scales add starts small, so the first output is nearly the noisy image and training goes
    straight to its residual.
    """
    for name, weight in network.named_parameters():
        fan_in = weight[0].numel()
        if name in ("m_up1.0.weight", "m_up2.0.weight", "m_up3.0.weight"):
            fan_in = weight.shape[0]  # transposed, windows of 2 that do not overlap
        gain = 2.0 if ".res.0" in name else 1.0
        # The second convolution of a residual block starts small: the block starts as identity.
        scale = 0.1 if ".res.2" in name else 1.0
        weight.normal_(0, scale * (gain / fan_in) ** 0.5, generator=generator)
    images = network.m_tail.weight.shape[0]
    centre = tuple(size // 2 for size in network.m_head.weight.shape[2:])
    network.m_head.weight[:images] = 0
    network.m_tail.weight.mul_(0.02)
    network.m_tail.weight[:, :images] = 0
    for channel in range(images):
        network.m_head.weight[channel, channel, *centre] = 1
        network.m_tail.weight[channel, channel, *centre] = 1
    network.m_up1[0].weight[:, :images] = 0


def gray_from_color(color):
    """A gray network's weights from a colour one's, which give what the colour one gives for gray.

    The head sees one channel three times: its weights add. The tail's three outputs are averaged.
    """
    gray = {name: weight.clone() for name, weight in color.items()}
    head = gray["m_head.weight"]
    gray["m_head.weight"] = torch.cat([head[:, :3].sum(1, keepdim=True), head[:, 3:]], 1)
    gray["m_tail.weight"] = gray["m_tail.weight"].mean(0, keepdim=True)
    return gray


@torch.no_grad()
def widen(network, narrow):
    """Give a network the weights of a narrower one, so that it computes the same.

    The new channels are computed from random weights, but nothing old reads them yet: their way out
    is zero, and training opens it.
    """
    for name, weight in network.named_parameters():
        old = narrow[name]
        transposed = name in ("m_up1.0.weight", "m_up2.0.weight", "m_up3.0.weight")
        weight, old = (w.transpose(0, 1) if transposed else w for w in (weight, old))
        outputs, inputs = old.shape[:2]
        if name == "m_head.weight":
            weight[:outputs] = old
        else:
            weight[:outputs, inputs:] = 0
            weight[:outputs, :inputs] = old


@torch.no_grad()
def inflate(network, flat):
    """Give a network for volumes the weights of one for gray images, so that it does the same to each slice.

    The middle planes of its kernels are the flat ones, and training fills the others.
    """
    for name, weight in network.named_parameters():
        weight.zero_()
        weight[:, :, weight.shape[2] // 2] = flat[name]


def denoise(network, noisy, sigma):
    """The network on a batch, with one noise level for each image."""
    level = sigma.view(-1, *[1] * (noisy.dim() - 1)).expand(-1, 1, *noisy.shape[2:])
    return network.forward_unet(torch.cat([noisy, level], 1))
