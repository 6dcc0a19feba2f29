"""Work done before or beside serving: building indexes, training, evaluation."""
