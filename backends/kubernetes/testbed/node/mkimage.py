#!/usr/bin/env python3
"""Packs one static program into an OCI image: no docker, no base image. Prints NAME:TAG@DIGEST.

mkimage.py NAME:TAG PROGRAM --tar FILE    writes an archive for `ctr images import`
mkimage.py NAME:TAG PROGRAM --push        uploads to the plain-HTTP registry that NAME begins with

A tag moves when it is pushed again with another program: push.sh STATE_DIR app:latest app-v1, then … app-v2.
The same program always has the same digest.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import tarfile
import urllib.error
import urllib.request

OCI = "application/vnd.oci.image."


def digest(blob):
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def descriptor(kind, blob):
    return {"mediaType": OCI + kind, "digest": digest(blob), "size": len(blob)}


def pack(files):
    """A tar of {path: (mode, bytes)}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, (mode, content) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def image(program):
    """The blobs of a one-layer image that runs the program: config, layer, manifest."""
    name = os.path.basename(program)
    with open(program, "rb") as file:
        files = pack({name: (0o755, file.read())})
    layer = gzip.compress(files, 1, mtime=0)
    config = json.dumps({
        "architecture": "amd64",
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Entrypoint": ["/" + name], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(files)]},
    }).encode()
    manifest = json.dumps({
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": descriptor("config.v1+json", config),
        "layers": [descriptor("layer.v1.tar+gzip", layer)],
    }).encode()
    return config, layer, manifest


def write_archive(path, name, blobs):
    manifest = blobs[-1]
    index = {
        "schemaVersion": 2,
        "manifests": [descriptor("manifest.v1+json", manifest) | {
            "platform": {"architecture": "amd64", "os": "linux"},
            "annotations": {"io.containerd.image.name": name},
        }],
    }
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    files |= {"blobs/sha256/" + digest(blob)[7:]: blob for blob in blobs}
    with open(path, "wb") as archive:
        archive.write(pack({file: (0o644, content) for file, content in files.items()}))


def push(name, blobs):
    *layers, manifest = blobs
    host, path = name.split("/", 1)
    repository, tag = path.rsplit(":", 1)
    base = f"http://{host}/v2/{repository}"
    # The registry is on loopback: a proxy from the environment must not be asked for it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(method, url, body=None, kind="application/octet-stream"):
        request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": kind})
        return opener.open(request)

    for blob in layers:
        try:
            call("HEAD", f"{base}/blobs/{digest(blob)}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            upload = call("POST", f"{base}/blobs/uploads/", b"").headers["Location"]
            call("PUT", f"{upload}{'&' if '?' in upload else '?'}digest={digest(blob)}", blob)
    call("PUT", f"{base}/manifests/{tag}", manifest, OCI + "manifest.v1+json")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name")
    arguments.add_argument("program")
    arguments.add_argument("--tar")
    arguments.add_argument("--push", action="store_true")
    given = arguments.parse_args()
    blobs = image(given.program)
    if given.tar:
        write_archive(given.tar, given.name, blobs)
    if given.push:
        push(given.name, blobs)
    print(f"{given.name}@{digest(blobs[-1])}")


main()
