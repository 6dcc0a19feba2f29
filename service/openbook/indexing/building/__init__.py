"""Building a version in steps that outlive the process: read, embed, publish, each shard by shard."""
