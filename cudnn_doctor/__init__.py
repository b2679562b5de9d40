"""cudnn-doctor: installer and environment doctor for NVIDIA cuDNN on Linux."""

__version__ = "0.1.0"
