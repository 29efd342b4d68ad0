"""TreeAttention on NVIDIA GPUs: one Triton source, compiled ahead of time to images that `driver` loads and launches.

kernel.py      what runs on the GPU                            triton
compile.py     kernel.py -> images, without a GPU              triton
interface.py   what a compiled kernel and its launch agree on  pure
images.py      the images of one attention shape, as files     pure
launches.py    one forward -> which kernel, grid, arguments    pure
driver.py      launches on a stream                            a module like cuda.bindings.driver
"""
