"""Training: warm start, reading, distillation of the question encoder, joint training, a checkpoint folder."""
