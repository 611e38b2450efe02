"""A volume through a segmentation network: python segment_volume.py organs.onnx ct.nii.gz labels.nii.gz

The labels lie where the volume does: they have its affine. On the command line the same is
brickrt run organs.onnx --input ct.nii.gz --preset ct --save labels --output labels.nii.gz
"""

from __future__ import annotations

import sys
from pathlib import Path

import nibabel as nib
import numpy as np

import brickrt


def segmented(model: Path, volume: nib.Nifti1Image) -> nib.Nifti1Image:
    """The label of each voxel: the greatest channel, or where the only one is above 0."""
    values = np.asarray(volume.dataobj, np.float32).transpose(2, 1, 0)  # [z, y, x], as the network takes it
    scaled = np.clip(values, -1000, 1000) / 2000 + 0.5  # Hounsfield units to 0 to 1
    with brickrt.Runtime(model) as runtime:
        given = {name: np.ascontiguousarray(scaled[None, None]) for name in runtime.source.inputs}
        (scores,) = runtime.execute(given).values()
    labels = scores[0].argmax(axis=0) if scores.shape[1] > 1 else scores[0, 0] > 0
    return nib.Nifti1Image(labels.astype(np.uint8).transpose(2, 1, 0), volume.affine)


if __name__ == "__main__":
    model, before, after = map(Path, sys.argv[1:])
    nib.save(segmented(model, nib.load(before)), after)
