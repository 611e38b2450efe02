"""A detector as packages write one for ONNX Runtime: it knows nothing of brickrt.

A test runs this file as it is, and with the import of ONNX Runtime changed.
"""

import numpy as np
import onnxruntime as ort


class Detector:
    """Finds boxes in pictures [height, width, 3], uint8: letterbox, network, decoding, non-maximum suppression."""

    def __init__(self, model_path, confidence=0.4, overlap=0.45, threads=2, providers=None):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        wanted = providers or ["CUDAExecutionProvider", "CPUExecutionProvider"]
        available = ort.get_available_providers()
        self.session = ort.InferenceSession(
            str(model_path), sess_options=options, providers=[name for name in wanted if name in available]
        )
        self.confidence, self.overlap = confidence, overlap
        first = self.session.get_inputs()[0]
        self.input_name, self.input_type = first.name, first.type
        self.dynamic = isinstance(first.shape[0], str)
        self.height, self.width = first.shape[2:4]
        self.output_names = [output.name for output in self.session.get_outputs()]
        names = self.session.get_modelmeta().custom_metadata_map.get("names", "")
        self.names = names.split(",") if names else []
        self.session.run(self.output_names, {self.input_name: self.blank(1)})  # warm up

    def blank(self, count):
        dtype = {"tensor(float)": np.float32, "tensor(float16)": np.float16}[self.input_type]
        return np.zeros((count, 3, self.height, self.width), dtype)

    def __call__(self, pictures):
        blobs, places = zip(*map(self.preprocess, pictures), strict=True)
        blob = np.concatenate(blobs)
        if self.dynamic:
            (found,) = self.session.run(self.output_names, {self.input_name: blob})
        else:
            runs = [self.session.run(None, {self.input_name: blob[k : k + 1]})[0] for k in range(len(blob))]
            found = np.concatenate(runs)
        return [self.postprocess(one, *place) for one, place in zip(found, places, strict=True)]

    def preprocess(self, picture):
        """The picture in the middle of a grey one of the network's size, and how to go back."""
        height, width = picture.shape[:2]
        scale = min(self.height / height, self.width / width)
        rows = np.minimum((np.arange(round(height * scale)) / scale).astype(int), height - 1)
        columns = np.minimum((np.arange(round(width * scale)) / scale).astype(int), width - 1)
        top, left = (self.height - len(rows)) // 2, (self.width - len(columns)) // 2
        canvas = np.full((self.height, self.width, 3), 114, np.uint8)
        canvas[top : top + len(rows), left : left + len(columns)] = picture[rows][:, columns]
        blob = canvas.transpose(2, 0, 1)[None].astype(np.float32) / 255.0
        return np.ascontiguousarray(blob), (scale, top, left)

    def postprocess(self, predictions, scale, top, left):
        """Boxes [n, 4] in the picture, scores and names, the surest first."""
        scores = predictions[:, 4:].max(1)
        kept = scores > self.confidence
        predictions, scores = predictions[kept], scores[kept]
        classes = predictions[:, 4:].argmax(1)
        centre, size = predictions[:, :2], predictions[:, 2:4]
        boxes = (np.concatenate([centre - size / 2, centre + size / 2], 1) - [left, top, left, top]) / scale
        chosen = self.suppress(boxes, scores)
        return boxes[chosen], scores[chosen], [self.names[k] for k in classes[chosen]]

    def suppress(self, boxes, scores):
        order, chosen = list(np.argsort(-scores, kind="stable")), []
        while order:
            best = order.pop(0)
            chosen.append(best)
            order = [k for k in order if self.common(boxes[best], boxes[k]) <= self.overlap]
        return chosen

    @staticmethod
    def common(one, other):
        sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
        shared = np.prod(np.maximum(sides, 0))
        return shared / (np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - shared)
