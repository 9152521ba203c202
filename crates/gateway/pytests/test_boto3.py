"""boto3 with its defaults: multipart, presigned URLs, checksums, conditions, listings, batches."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from boto3.s3.transfer import TransferConfig
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from penstock_bench.gateways import Lane, Running

from gateway_tests import lanes

BUCKET = "with-boto3"
PART = 5 << 20


@pytest.fixture(scope="module")
def s3(lane: Running) -> Iterator[BaseClient]:
    client = lanes.client(lane)
    client.create_bucket(Bucket=BUCKET)
    yield client
    for key in lanes.keys(lane, BUCKET):
        client.delete_object(Bucket=BUCKET, Key=key)
    client.delete_bucket(Bucket=BUCKET)
    assert BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]


def data(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def read(s3: BaseClient, key: str, **more: str) -> bytes:
    return bytes(s3.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read())


def code(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def test_an_object_comes_back_with_all_that_was_said_of_it(s3: BaseClient) -> None:
    s3.put_object(
        Bucket=BUCKET,
        Key="a/b c+d/ü.bin",
        Body=data(1000),
        ContentType="text/x-test",
        CacheControl="max-age=5",
        ContentDisposition="attachment",
        ContentLanguage="de",
        Metadata={"my-key": "my value", "other": "2"},
    )
    head = s3.head_object(Bucket=BUCKET, Key="a/b c+d/ü.bin")
    assert (head["ContentLength"], head["ContentType"]) == (1000, "text/x-test")
    assert (head["CacheControl"], head["ContentLanguage"]) == ("max-age=5", "de")
    assert head["ContentDisposition"] == "attachment"
    assert head["Metadata"] == {"my-key": "my value", "other": "2"}
    assert read(s3, "a/b c+d/ü.bin") == data(1000)
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="a/b c")["Contents"][0]
    assert (listed["Key"], listed["ETag"]) == ("a/b c+d/ü.bin", head["ETag"])


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [("bytes=0-9", 0, 10), ("bytes=990-", 990, 1000), ("bytes=-7", 993, 1000)],
)
def test_ranges(s3: BaseClient, asked: str, begin: int, end: int) -> None:
    s3.put_object(Bucket=BUCKET, Key="ranges", Body=data(1000))
    answer = s3.get_object(Bucket=BUCKET, Key="ranges", Range=asked)
    assert answer["ContentRange"] == f"bytes {begin}-{end - 1}/1000"
    assert answer["Body"].read() == data(1000)[begin:end]


def test_large_files_go_up_in_parts_and_come_down_in_ranges(s3: BaseClient) -> None:
    transfer = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART)
    s3.upload_fileobj(io.BytesIO(data(3 * PART + 77)), BUCKET, "large", Config=transfer)
    down = io.BytesIO()
    s3.download_fileobj(BUCKET, "large", down, Config=transfer)
    assert down.getvalue() == data(3 * PART + 77)
    s3.copy({"Bucket": BUCKET, "Key": "large"}, BUCKET, "copied", Config=transfer)
    assert read(s3, "copied") == data(3 * PART + 77)


def test_parts_in_any_order_listed_completed_and_aborted(s3: BaseClient) -> None:
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="parts", Metadata={"a": "b"})["UploadId"]
    where = {"Bucket": BUCKET, "Key": "parts", "UploadId": upload}
    bodies = {1: data(PART), 2: data(PART + 1), 3: b"end"}
    etags = {
        number: s3.upload_part(**where, PartNumber=number, Body=bodies[number])["ETag"]
        for number in (3, 1, 2)
    }
    assert [part["PartNumber"] for part in s3.list_parts(**where)["Parts"]] == [1, 2, 3]
    begun = s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    # An id that is listed may be another name of the same upload.
    (listed,) = [one["UploadId"] for one in begun if one["Key"] == "parts"]
    told = s3.list_parts(Bucket=BUCKET, Key="parts", UploadId=listed)["Parts"]
    assert [part["PartNumber"] for part in told] == [1, 2, 3]
    parts = [{"PartNumber": number, "ETag": etags[number]} for number in (1, 2, 3)]
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    assert read(s3, "parts") == b"".join(bodies.values())
    assert s3.head_object(Bucket=BUCKET, Key="parts")["Metadata"] == {"a": "b"}
    other = s3.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
    s3.upload_part(Bucket=BUCKET, Key="parts", UploadId=other, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(Bucket=BUCKET, Key="parts", UploadId=other)
    with pytest.raises(ClientError) as error:
        s3.list_parts(Bucket=BUCKET, Key="parts", UploadId=other)
    assert code(error) == ("NoSuchUpload", 404)


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_presigned_urls(lane: Running, s3: BaseClient, version: str) -> None:
    where = {"Bucket": BUCKET, "Key": "presigned"}
    signer = lanes.client(lane, signature_version=version)
    http = urllib3.PoolManager(retries=False)
    put = signer.generate_presigned_url("put_object", where)
    assert http.request("PUT", put, body=data(100)).status == 200
    url = signer.generate_presigned_url("get_object", where)
    assert http.request("GET", url).data == data(100)
    assert http.request("GET", url, headers={"Range": "bytes=1-2"}).data == data(100)[1:3]
    assert http.request("GET", url.replace("presigned?", "other?")).status == 403


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_checksums_are_made_by_the_sdk_and_checked(s3: BaseClient, algorithm: str) -> None:
    if algorithm in ("CRC32", "SHA1", "SHA256"):  # the others need a package of their own
        s3.put_object(Bucket=BUCKET, Key="sum", Body=data(999), ChecksumAlgorithm=algorithm)
        assert read(s3, "sum", ChecksumMode="ENABLED") == data(999)
    lengths = {"CRC32": 8, "CRC32C": 8, "CRC64NVME": 12, "SHA1": 28, "SHA256": 44}
    wrong = {f"Checksum{algorithm}": "A" * (lengths[algorithm] - 1) + "="}
    if algorithm in ("CRC32", "CRC32C"):
        wrong = {f"Checksum{algorithm}": "AAAAAA=="}
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=BUCKET, Key="wrong", Body=data(998), **wrong)
    assert code(error)[1] == 400
    with pytest.raises(ClientError) as error:
        s3.head_object(Bucket=BUCKET, Key="wrong")
    assert code(error)[1] == 404


def test_content_md5_is_checked(s3: BaseClient) -> None:
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=BUCKET, Key="md5", Body=b"x", ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")
    assert code(error) == ("BadDigest", 400)


def test_conditional_writes_and_deletes(s3: BaseClient) -> None:
    where = {"Bucket": BUCKET, "Key": "once"}
    first = s3.put_object(**where, Body=b"1", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError) as error:
        s3.put_object(**where, Body=b"2", IfNoneMatch="*")
    assert code(error) == ("PreconditionFailed", 412)
    second = s3.put_object(**where, Body=b"3", IfMatch=first)["ETag"]
    assert second != first
    with pytest.raises(ClientError) as error:
        s3.put_object(**where, Body=b"4", IfMatch=first)
    assert code(error) == ("PreconditionFailed", 412)
    with pytest.raises(ClientError) as error:
        s3.get_object(**where, IfNoneMatch=second)
    assert code(error)[1] == 304
    with pytest.raises(ClientError) as error:
        s3.delete_object(**where, IfMatch=first)
    assert code(error) == ("PreconditionFailed", 412)
    assert read(s3, "once") == b"3"
    s3.delete_object(**where, IfMatch=second)
    with pytest.raises(ClientError) as error:
        s3.head_object(**where)
    assert code(error)[1] == 404


def test_listings_in_pages_with_delimiters(s3: BaseClient) -> None:
    names = [f"list/{folder}/{number}" for folder in "abc" for number in range(5)]
    for name in names:
        s3.put_object(Bucket=BUCKET, Key=name, Body=name.encode())
    for verb in ("list_objects", "list_objects_v2"):
        pages = s3.get_paginator(verb).paginate(
            Bucket=BUCKET, Prefix="list/", PaginationConfig={"PageSize": 4}
        )
        assert [entry["Key"] for page in pages for entry in page["Contents"]] == names
        pages = s3.get_paginator(verb).paginate(
            Bucket=BUCKET, Prefix="list/", Delimiter="/", PaginationConfig={"PageSize": 2}
        )
        folders = [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", [])]
        assert folders == ["list/a/", "list/b/", "list/c/"]
    after = s3.list_objects_v2(Bucket=BUCKET, Prefix="list/", StartAfter="list/b/2")["Contents"]
    assert after[0]["Key"] == "list/b/3"
    answer = s3.delete_objects(
        Bucket=BUCKET, Delete={"Objects": [{"Key": name} for name in [*names, "list/none"]]}
    )
    assert "Errors" not in answer
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET, Prefix="list/")


def test_copies(s3: BaseClient) -> None:
    body = data(5000)
    s3.put_object(Bucket=BUCKET, Key="from", Body=body, Metadata={"a": "1"}, ContentType="x/y")
    source = {"Bucket": BUCKET, "Key": "from"}
    s3.copy_object(Bucket=BUCKET, Key="kept", CopySource=source)
    head = s3.head_object(Bucket=BUCKET, Key="kept")
    assert (head["Metadata"], head["ContentType"]) == ({"a": "1"}, "x/y")
    s3.copy_object(
        Bucket=BUCKET,
        Key="changed",
        CopySource=source,
        MetadataDirective="REPLACE",
        Metadata={"b": "2"},
    )
    assert s3.head_object(Bucket=BUCKET, Key="changed")["Metadata"] == {"b": "2"}
    for key in ("kept", "changed"):
        assert hashlib.sha256(read(s3, key)).digest() == hashlib.sha256(body).digest()


def test_answers_that_begin_before_their_end_is_known(scratch: Path) -> None:
    """botocore takes an error in an answer of status 200 for one of status 500."""
    lane = Lane("penstock", "directory", scratch / "late", extra="completion_quiet_ms = 0")
    with lane as running:
        s3 = lanes.client(running)
        s3.create_bucket(Bucket=BUCKET)
        body = data(5000)
        s3.put_object(Bucket=BUCKET, Key="from", Body=body)
        source, missing = (f"{BUCKET}/{key}" for key in ("from", "missing"))
        copied = s3.copy_object(Bucket=BUCKET, Key="copy", CopySource=source)["CopyObjectResult"]
        assert copied["ETag"] == s3.head_object(Bucket=BUCKET, Key="copy")["ETag"]
        with pytest.raises(ClientError) as error:
            s3.copy_object(Bucket=BUCKET, Key="none", CopySource=missing)
        assert code(error) == ("NoSuchKey", 500)
        upload = s3.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
        names = {"Bucket": BUCKET, "Key": "parts", "UploadId": upload}
        with pytest.raises(ClientError) as error:
            s3.upload_part_copy(**names, PartNumber=1, CopySource=missing)
        assert code(error) == ("NoSuchKey", 500)
        part = s3.upload_part_copy(**names, PartNumber=1, CopySource=source)["CopyPartResult"]
        wrong, right = (
            {"Parts": [{"PartNumber": 1, "ETag": tag}]} for tag in ("other", part["ETag"])
        )
        with pytest.raises(ClientError) as error:
            s3.complete_multipart_upload(**names, MultipartUpload=wrong)
        assert code(error) == ("InvalidPart", 500)
        done = s3.complete_multipart_upload(**names, MultipartUpload=right)
        assert done["Key"] == "parts"
        assert read(s3, "copy") == read(s3, "parts") == body


def test_versions_that_azure_keeps(scratch: Path) -> None:
    """Every version by its id, in pages, and a bucket emptied as clients do it."""
    lane = Lane("penstock", "azure-fake", scratch / "versions", fake_flags=["--versioning"])
    with lane as running:
        s3 = lanes.client(running)
        s3.create_bucket(Bucket=BUCKET)
        bodies = [data(size) for size in (10, 20, 30)]
        ids = [s3.put_object(Bucket=BUCKET, Key="a/k", Body=body)["VersionId"] for body in bodies]
        transfer = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART)
        s3.upload_fileobj(io.BytesIO(data(PART + 1)), BUCKET, "large", Config=transfer)
        assert s3.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
        for version, body in zip(ids, bodies, strict=True):
            assert read(s3, "a/k", VersionId=version) == body
            head = s3.head_object(Bucket=BUCKET, Key="a/k", VersionId=version)
            assert (head["VersionId"], head["ContentLength"]) == (version, len(body))
        source = {"Bucket": BUCKET, "Key": "a/k", "VersionId": ids[0]}
        back = s3.copy_object(Bucket=BUCKET, Key="a/k", CopySource=source)
        assert back["CopySourceVersionId"] == ids[0]
        assert read(s3, "a/k") == bodies[0]
        s3.delete_object(Bucket=BUCKET, Key="a/k")
        with pytest.raises(ClientError) as error:
            s3.head_object(Bucket=BUCKET, Key="a/k")
        assert code(error)[1] == 404
        pages = s3.get_paginator("list_object_versions").paginate(
            Bucket=BUCKET, PaginationConfig={"PageSize": 2}
        )
        listed = [one for page in pages for one in page["Versions"]]
        wanted = [back["VersionId"], *reversed(ids)]
        assert [one["VersionId"] for one in listed if one["Key"] == "a/k"] == wanted
        assert [one["Key"] for one in listed if one["IsLatest"]] == ["large"]
        folded = s3.list_object_versions(Bucket=BUCKET, Delimiter="/")
        assert [one["Prefix"] for one in folded["CommonPrefixes"]] == ["a/"]
        with pytest.raises(ClientError) as error:
            s3.delete_bucket(Bucket=BUCKET)
        assert code(error) == ("BucketNotEmpty", 409)
        gone = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in listed]
        answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": gone})
        assert "Errors" not in answer
        assert "Versions" not in s3.list_object_versions(Bucket=BUCKET)
        s3.delete_bucket(Bucket=BUCKET)
