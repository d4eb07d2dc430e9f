"""Pushes and pulls with oras as its users do: the package has a client and no program.

usage: drive.py push REFERENCE FILE:TYPE CONFIG CA
       drive.py pull REFERENCE FOLDER CONFIG CA

CONFIG is a Docker configuration with the password, CA the certificate that the registry has.
"""

import sys

import oras.client

verb, reference, path, config, ca = sys.argv[1:]
client = oras.client.OrasClient(tls_verify=ca, auth_backend="basic")
if verb == "push":
    # Files outside of the working folder are refused otherwise.
    client.push(reference, files=[path], config_path=config, disable_path_validation=True)
elif verb == "pull":
    client.pull(reference, outdir=path, config_path=config)
else:
    sys.exit(__doc__)
