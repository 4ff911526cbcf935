"""same_in_python.py MODEL.safetensors FILE.h5...: whether the HDF5 files hold the tensors of the first one, bit by bit."""
import sys

import h5py
import numpy
import torch
from safetensors.torch import load_file


def bits(tensor):
    tensor = tensor.contiguous()
    return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16).numpy()


def raw(dataset):
    """The stored bytes: h5py would widen bf16, which is right but not what is compared."""
    space = dataset.id.get_space()
    values = numpy.empty(dataset.shape, dtype=numpy.int32 if dataset.dtype.itemsize == 4 and dataset.id.get_type().get_size() == 4 else numpy.int16)
    dataset.id.read(space, space, values, mtype=dataset.id.get_type())
    return values


tensors = load_file(sys.argv[1])
for path in sys.argv[2:]:
    with h5py.File(path, "r") as file:
        for name, tensor in tensors.items():
            dataset = file[name]
            assert tuple(dataset.shape) == tuple(tensor.shape), (path, name, dataset.shape, tensor.shape)
            if tensor.numel() == 0:
                continue
            assert numpy.array_equal(raw(dataset), bits(tensor)), (path, name)
            # And as a user reads it.
            values = torch.tensor(numpy.asarray(dataset[()], dtype=numpy.float32))
            assert torch.equal(values, tensor.float()), (path, name)
        assert file["lm_head"] is not None
print(len(tensors), "tensors")
