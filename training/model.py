"""The denoiser: deepinv's DRUNet, small, and where its weights start.

Parameter names and shapes are deepinv's, so the exported weights load there and in the engine.
Only the start is ours: a DRUNet has no skip from its input to its output, and left to itself it
spends its first thousand steps learning to copy. What is learnt can also be handed on: from colour
to gray, and from a narrow network to a wider one.
"""

import torch
from deepinv.models import DRUNet

# Multiples of 8, which fill the engine's vectors.
CHANNELS = [16, 32, 64, 128]
BLOCKS = 2
SIGMA_MAX = 75 / 255
IMAGE_CHANNELS = {"color": 3, "gray": 1}


def drunet(kind, channels=CHANNELS, blocks=BLOCKS):
    count = IMAGE_CHANNELS[kind]
    return DRUNet(
        in_channels=count, out_channels=count, nc=list(channels), nb=blocks, pretrained=None
    )


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
    network.m_head.weight[:images] = 0
    network.m_tail.weight.mul_(0.02)
    network.m_tail.weight[:, :images] = 0
    for channel in range(images):
        network.m_head.weight[channel, channel, 1, 1] = 1
        network.m_tail.weight[channel, channel, 1, 1] = 1
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


def denoise(network, noisy, sigma):
    """The network on a batch, with one noise level for each image."""
    level = sigma.view(-1, 1, 1, 1).expand(-1, 1, *noisy.shape[2:])
    return network.forward_unet(torch.cat([noisy, level], 1))
