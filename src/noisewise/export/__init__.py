"""What was learned, for programs that know nothing of noisewise: vectors, and ONNX."""

from noisewise.export.graph import to_onnx
from noisewise.export.vectors import Vectors, vectors, write_vectors

__all__ = ["Vectors", "to_onnx", "vectors", "write_vectors"]
