"""The recorder of what a process asks of the CUDA driver, and defects that are planted at that boundary.

    library = recorder(made_cache_folder())
    control(library, folder / "control", {})    # NotMeasured where this machine's driver does not load it
    subprocess.run(command, env={**os.environ, **recording(library, folder)})
    read(folder).ptx                            # what the driver had to compile

The C sources are compiled on demand with the host's compiler. They need no header of CUDA.
"""
