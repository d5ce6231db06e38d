#!/usr/bin/env python3
"""Packs a program, or a directory, into an OCI image of one layer: no docker, no base image. Prints NAME:TAG@DIGEST.

mkimage.py NAME:TAG PROGRAM --tar FILE      writes an archive, for `ctr images import`, `skopeo copy oci-archive:…` and such
mkimage.py NAME:TAG PROGRAM --push          uploads to the plain-HTTP registry that NAME begins with
mkimage.py NAME:TAG DIRECTORY --entrypoint /PROGRAM [--env NAME=VALUE]… [--capability PATH=setuid]… …

All files belong to root and have no date: what is the same always has the same digest. A tag moves when it is pushed
again with something else.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import stat
import struct
import tarfile
import urllib.error
import urllib.request

OCI = "application/vnd.oci.image."
CAPABILITIES = {"setgid": 6, "setuid": 7} # linux/capability.h
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def digest(blob):
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def descriptor(kind, blob):
    return {"mediaType": OCI + kind, "digest": digest(blob), "size": len(blob)}


def capability(name):
    """A program's permission to take one capability, as the kernel keeps it: revision 2, effective at once."""
    value = struct.pack("<5I", 0x02000001, 1 << CAPABILITIES[name], 0, 0, 0)
    return {"SCHILY.xattr.security.capability": value.decode("utf-8", "surrogateescape")}


def pack(files, capabilities={}):
    """A tar of {path: (mode, bytes, a link's target, or None for a directory)}, directories first."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, (mode, content) in files.items():
            entry = tarfile.TarInfo(path)
            entry.mode = mode
            entry.pax_headers = capability(capabilities[path]) if path in capabilities else {}
            if content is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            else:
                entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


def tree(root):
    """What lies below a directory, in an order that is always the same."""
    files = {}
    for directory, names, others in os.walk(root):
        names.sort()
        for name in sorted(names + others):
            path = os.path.join(directory, name)
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isdir(path):
                content = None
            else:
                with open(path, "rb") as file:
                    content = file.read()
            files[os.path.relpath(path, root)] = (mode, content)
    return files


def image(files, capabilities, entrypoint, environment, user, architecture):
    """The blobs of a one-layer image: config, layer, manifest."""
    files = pack(files, capabilities)
    layer = gzip.compress(files, 1, mtime=0)
    config = json.dumps({
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Entrypoint": [entrypoint], "WorkingDir": "/"} | ({"Env": environment} if environment else {}) | ({"User": user} if user else {}),
        "rootfs": {"type": "layers", "diff_ids": [digest(files)]},
    }).encode()
    manifest = json.dumps({
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": descriptor("config.v1+json", config),
        "layers": [descriptor("layer.v1.tar+gzip", layer)],
    }).encode()
    return config, layer, manifest


def write_archive(path, name, blobs, architecture):
    manifest = blobs[-1]
    index = {
        "schemaVersion": 2,
        "manifests": [descriptor("manifest.v1+json", manifest) | {
            "platform": {"architecture": architecture, "os": "linux"},
            "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1]},
        }],
    }
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    files |= {"blobs/sha256/" + digest(blob)[7:]: blob for blob in blobs}
    with open(path, "wb") as archive:
        archive.write(pack({file: (0o644, content) for file, content in files.items()}))


def push(name, blobs, architecture, is_index):
    *layers, manifest = blobs
    host, path = name.split("/", 1)
    repository, tag = path.rsplit(":", 1)
    base = f"http://{host}/v2/{repository}"
    # The registry is on this machine: a proxy from the environment must not be asked for it.
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
    call("PUT", f"{base}/manifests/{digest(manifest) if is_index else tag}", manifest, OCI + "manifest.v1+json")
    if is_index:
        only = descriptor("manifest.v1+json", manifest) | {"platform": {"architecture": architecture, "os": "linux"}}
        index = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [only]}
        call("PUT", f"{base}/manifests/{tag}", json.dumps(index).encode(), OCI + "index.v1+json")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name")
    arguments.add_argument("content", metavar="PROGRAM|DIRECTORY")
    arguments.add_argument("--entrypoint")
    arguments.add_argument("--env", action="append", default=[])
    arguments.add_argument("--capability", action="append", default=[])
    arguments.add_argument("--user", help="the user that the program runs as; default: root")
    arguments.add_argument("--architecture", default=ARCHITECTURE, help="what the image says it is for; default: this machine's")
    arguments.add_argument("--tar")
    arguments.add_argument("--push", action="store_true")
    arguments.add_argument("--index", action="store_true", help="pushes an index of the image for its one platform; prints the image's digest")
    given = arguments.parse_args()
    if os.path.isdir(given.content):
        files, first = tree(given.content), given.entrypoint
        if first is None:
            arguments.error("a directory needs --entrypoint")
    else:
        name = os.path.basename(given.content)
        with open(given.content, "rb") as file:
            files, first = {name: (0o755, file.read())}, given.entrypoint or "/" + name
    capabilities = dict(pair.split("=") for pair in given.capability)
    blobs = image(files, capabilities, first, given.env, given.user, given.architecture)
    if given.tar:
        write_archive(given.tar, given.name, blobs, given.architecture)
    if given.push:
        push(given.name, blobs, given.architecture, given.index)
    print(f"{given.name}@{digest(blobs[-1])}")


main()
