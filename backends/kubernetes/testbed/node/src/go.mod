module testbed

go 1.24
