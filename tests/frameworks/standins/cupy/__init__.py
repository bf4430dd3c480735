from cupy import cuda as cuda
