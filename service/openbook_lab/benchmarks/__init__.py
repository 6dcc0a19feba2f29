"""What the service costs, measured on the machine at hand over indexes of any size."""
