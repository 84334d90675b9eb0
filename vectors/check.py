"""Checks the vectors beside this file, by the rules in README.md. Python 3.9 or later."""

import hashlib
import hmac
import json
import re
import sys
import urllib.parse
import uuid
import zlib
from pathlib import Path

HERE = Path(__file__).parent
TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"


class Doubt(Exception):
    """What is read could mean two things, or nothing."""


# --- Keys

KEY_LEN_MAX = 255
SF_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
SF_ITEM = "|".join([
    SF_STRING,
    r"-?[0-9]{1,12}\.[0-9]{1,3}",
    r"-?[0-9]{1,15}",
    r"@-?[0-9]{1,15}",
    r"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*",
    r":(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}={0,2}|[A-Za-z0-9+/]{3}=?)?:",
    r"\?[01]",
    r'%"(?:[ !#$&-~]|%[0-9a-f]{2})*"',
])
SF_KEY = re.compile(rf"({SF_STRING})((?:; *[a-z*][a-z0-9_\-.*]*(?:=(?:{SF_ITEM}))?)*) *")
DISPLAY = re.compile(rf"{SF_STRING}|%\"([^\"]*)\"")


def is_display_text(text):
    """Whether the percent-encoded bytes are UTF-8."""
    try:
        urllib.parse.unquote_to_bytes(text).decode("utf-8")
        return True
    except UnicodeDecodeError:
        return False


def read_key(raw, strict):
    """The key, or the error with its details."""
    if not raw:
        return {"error": "empty"}
    quoted = raw.startswith(b'"')
    if strict and not quoted:
        return {"error": "not-quoted"}
    least = 0x20 if quoted else 0x21
    for at, byte in enumerate(raw):
        if not least <= byte <= 0x7E:
            return {"error": "bad-byte", "at": at}
    key = raw.decode("ascii")
    if quoted:
        item = SF_KEY.fullmatch(key)
        if not item or not all(is_display_text(text) for text in DISPLAY.findall(item[2])):
            return {"error": "bad-string"}
        key = re.sub(r"\\(.)", r"\1", item[1][1:-1])
    if not key:
        return {"error": "empty"}
    if len(key) > KEY_LEN_MAX:
        return {"error": "too-long", "len": len(key)}
    return {"key": key}


# --- Digests


class Digester:
    def __init__(self, secret, label):
        self.hash = hmac.new(secret, digestmod="sha256") if secret else hashlib.sha256()
        self.field(b"selfsame")
        self.field(label)

    def count(self, number):
        self.hash.update(number.to_bytes(8, "big"))

    def field(self, value):
        self.count(len(value))
        self.hash.update(value)

    def optional(self, value):
        self.hash.update(b"\0" if value is None else b"\1")
        self.field(value or b"")

    def digest(self):
        return self.hash.digest()


# --- Content encodings


def decoded(encoding, body, bytes_max):
    if encoding is None:
        return body
    bytes_max = min(bytes_max, 32 * len(body) + 16384)
    codings = [coding.strip(b" \t").lower() for coding in encoding.split(b",")]
    window = {b"identity": None, b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
    if len(codings) > 3 or not all(coding in window for coding in codings):
        raise Doubt
    for coding in reversed(codings):
        if coding == b"identity":
            continue
        stream = zlib.decompressobj(window[coding])
        try:
            body = stream.decompress(body, bytes_max + 1)
        except zlib.error:
            raise Doubt from None
        if not stream.eof or stream.unused_data or len(body) > bytes_max:
            raise Doubt
    return body


# --- Content types

PARAMETER = re.compile(
    rb"(" + TOKEN + rb')=(?:(' + TOKEN + rb')|"((?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*)")'
)


class ContentType:
    def __init__(self, raw):
        essence = re.match(TOKEN + b"/" + TOKEN, raw)
        if not essence:
            raise Doubt
        self.essence, self.parameters = essence[0].lower(), []
        at = essence.end()
        while raw[at:].strip(b" \t"):
            semicolon = re.compile(rb"[ \t]*;[ \t]*").match(raw, at)
            if not semicolon:
                raise Doubt
            at = semicolon.end()
            if raw[at:at + 1] in (b"", b";"):
                continue
            parameter = PARAMETER.match(raw, at)
            if not parameter:
                raise Doubt
            at = parameter.end()
            value = parameter[2] if parameter[2] is not None else parameter[3]
            self.parameters.append((parameter[1].lower(), value, parameter[0]))
        charsets = self.all(b"charset")
        self.charset_is_dropped = len(charsets) == 1 and charsets[0].lower() == b"utf-8"

    def all(self, name):
        return [value for found, value, _ in self.parameters if found == name]

    def is_json(self):
        is_utf8 = self.charset_is_dropped or not self.all(b"charset")
        return is_utf8 and (self.essence == b"application/json" or self.essence.endswith(b"+json"))

    def boundary(self):
        values = self.all(b"boundary")
        if self.essence != b"multipart/form-data" or len(values) != 1:
            raise Doubt
        if not re.fullmatch(rb"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]", values[0]):
            raise Doubt
        return values[0]

    def text(self, left_out=()):
        left_out = {*left_out, b"charset"} if self.charset_is_dropped else set(left_out)
        kept = [text for name, _, text in self.parameters if name not in left_out]
        return b";".join([self.essence, *kept])


# --- JSON

DEPTH_MAX = 64


class Number(str):
    """A number as it was written."""


def no_constant(_):
    raise Doubt


def members(pairs):
    if len({name for name, _ in pairs}) < len(pairs):
        raise Doubt
    return dict(pairs)


def pointer(text):
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def canonical(body, ignore):
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=members,
            parse_int=Number,
            parse_float=Number,
            parse_constant=no_constant,
        )
        # The whole text is written once, so that what is left out is checked too.
        write(value, [], DEPTH_MAX).encode("utf-8")
        return write(value, [pointer(text) for text in ignore], DEPTH_MAX).encode("utf-8")
    except (ValueError, RecursionError):
        raise Doubt from None


def write_string(text):
    escape = lambda found: "\\" + found[0] if found[0] in '"\\' else f"\\u{ord(found[0]):04x}"
    return '"' + re.sub(r'["\\\x00-\x1f]', escape, text) + '"'


def write(value, ignore, depth):
    if isinstance(value, Number):
        return value
    if isinstance(value, str):
        return write_string(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if depth == 0:
        raise Doubt
    is_object = isinstance(value, dict)
    written = []
    for name, inner in value.items() if is_object else enumerate(value):
        below = [steps[1:] for steps in ignore if steps[0] == str(name)]
        if [] in below:
            continue
        text = write(inner, below, depth - 1)
        written.append((write_string(name), text) if is_object else text)
    if not is_object:
        return "[" + ",".join(written) + "]"
    written.sort(key=lambda member: member[0][1:-1].encode("utf-8", "surrogatepass"))
    return "{" + ",".join(name + ":" + text for name, text in written) + "}"


# --- Multipart


def parts(body, boundary):
    first, *between = body.split(b"--" + boundary)
    if first or len(between) < 2 or between.pop() not in (b"--", b"--\r\n"):
        raise Doubt
    found = []
    for part in between:
        if not (part.startswith(b"\r\n") and part.endswith(b"\r\n") and len(part) >= 4):
            raise Doubt
        rest, headers = part[2:-2], []
        while True:
            line, line_end, rest = rest.partition(b"\r\n")
            if not line_end:
                raise Doubt
            if not line:
                break
            header = re.fullmatch(rb"(" + TOKEN + rb"):([^\r\n\0]*)", line)
            if not header:
                raise Doubt
            headers.append((header[1].lower(), header[2]))
        found.append((headers, rest))
    return found


# --- Fingerprints


def read_content(request, rules):
    """Content type, content encoding, how the body is compared, and the body as it counts."""
    kind, encoding, body = request["content_type"], request["content_encoding"], request["body"]
    if rules.get("form") == "raw":
        return kind, encoding, "raw", body
    is_packed = False
    try:
        body = decoded(encoding, body, rules.get("unpacked_bytes_max", 1 << 20))
        encoding = None
    except Doubt:
        is_packed = True
    if kind is None:
        return kind, encoding, "raw", body
    try:
        read = ContentType(kind)
    except Doubt:
        return kind, encoding, "raw", body
    if not is_packed:
        try:
            if read.is_json():
                return read.text(), encoding, "json", canonical(body, rules.get("ignore", []))
            return read.text([b"boundary"]), encoding, "multipart", parts(body, read.boundary())
        except Doubt:
            pass
    return read.text(), encoding, "raw", body


def fingerprint(request, rules, secret):
    kind, encoding, form, body = read_content(request, rules)
    digester = Digester(secret, b"fingerprint/1")
    digester.field(request["method"])
    digester.optional(request["authority"] and request["authority"].lower())
    digester.field(request["path"])
    digester.optional(request["query"])
    digester.optional(kind)
    digester.optional(encoding)
    digester.count(len(request["headers"]))
    for name, value in request["headers"]:
        digester.field(name)
        digester.optional(value)
    digester.field(form.encode())
    if form == "multipart":
        digester.count(len(body))
        for headers, content in body:
            digester.count(len(headers))
            for name, value in headers:
                digester.field(name)
                digester.field(value)
            digester.field(content)
    else:
        digester.field(body)
    secret_id = Digester(secret, b"secret-id").digest()[:4] if secret else bytes(4)
    return (b"\1" + secret_id + digester.digest()).hex()


# --- Derived keys


def derived_key(birth, phase):
    digester = Digester(None, b"derived-key/1")
    digester.field(birth)
    digester.field(phase.encode("utf-8"))
    key = bytearray(digester.digest()[:16])
    key[6] = key[6] & 0x0F | 0x80
    key[8] = key[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(key)))


# --- The files


def octets(text):
    return None if text is None else text.encode("latin-1")


def facts(request):
    body = request["body"].encode("utf-8") if "body" in request else bytes.fromhex(request["body_hex"])
    names = ["method", "authority", "path", "query", "content_type", "content_encoding"]
    headers = [(octets(name), octets(value)) for name, value in request.get("headers", [])]
    return {**{name: octets(request.get(name)) for name in names}, "headers": headers, "body": body}


def check_keys(vector, _):
    raw = octets(vector["raw"]) if "raw" in vector else bytes.fromhex(vector["raw_hex"])
    expected = {name: vector[name] for name in ("key", "error", "at", "len") if name in vector}
    return read_key(raw, vector.get("strict", False)), expected


def check_fingerprints(vector, file):
    request, rules = facts(vector["request"]), vector.get("rules", {})
    secret = bytes.fromhex(file["secret"])
    computed = [fingerprint(request, rules, None), fingerprint(request, rules, secret)]
    return computed, [vector["plain"], vector["keyed"]]


def check_derived_keys(vector, _):
    return derived_key(bytes.fromhex(vector["birth"]), vector["phase"]), vector["key"]


def main():
    files = {
        "keys.json": check_keys,
        "fingerprints.json": check_fingerprints,
        "derived-keys.json": check_derived_keys,
    }
    wrong = 0
    for name, check in files.items():
        file = json.loads((HERE / name).read_text("utf-8"))
        for vector in file["vectors"]:
            computed, expected = check(vector, file)
            if computed != expected:
                wrong += 1
                print(f"{name}: {vector['name']}: {computed}, expected {expected}", file=sys.stderr)
        print(f"{name}: {len(file['vectors'])} vectors")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
