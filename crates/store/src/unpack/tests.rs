use super::*;
use crate::BodySource;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderValue;
use proptest::prelude::*;
use std::io::Write as _;
use std::sync::Mutex;

/// Packed bytes that come in pieces of these lengths, over and over.
#[derive(Debug)]
struct Pieces {
    bytes: Bytes,
    steps: Vec<usize>,
    turn: usize,
}

impl BodySource for Pieces {
    fn remaining(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn poll_read(&mut self, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>> {
        self.turn += 1;
        if self.turn.is_multiple_of(3) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let step = self.steps[self.turn % self.steps.len()].min(buf.len()).min(self.bytes.len());
        buf[..step].copy_from_slice(&self.bytes.split_to(step));
        Poll::Ready(Ok(step))
    }
}

fn source(bytes: Vec<u8>, steps: &[usize]) -> Body {
    Body::Source(Box::new(Pieces { bytes: bytes.into(), steps: steps.to_vec(), turn: 0 }))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bare(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// "penstock" and a newline, as the reference encoder packs it.
const BROTLI: &[u8] = b"\x0b\x04\x80penstock\n\x03";

fn headers(codings: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for coding in codings {
        headers.append(CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
    }
    headers
}

async fn read(body: Body, codings: &[Coding], key: &str) -> Result<(Vec<u8>, bool)> {
    let (mut body, is_packed) = unpacked(body, codings, key, "http://h/k").await?;
    let mut all = Vec::new();
    let mut piece = vec![0; 1000];
    loop {
        match body.read(&mut piece).await? {
            0 => return Ok((all, is_packed)),
            count => all.extend_from_slice(&piece[..count]),
        }
    }
}

#[test]
fn codings_are_named_or_refused() {
    use Coding::*;
    for (text, expected) in [
        (vec![], vec![]),
        (vec!["identity"], vec![]),
        (vec!["utf-8", "aws-chunked"], vec![]),
        (vec!["x-gzip"], vec![Gzip]),
        (vec!["GZIP, br"], vec![Gzip, Brotli]),
        (vec!["deflate", " zstd "], vec![Deflate, Zstd]),
    ] {
        assert_eq!(codings(&headers(&text)).unwrap(), expected, "{text:?}");
    }
    for text in ["compress", "dcb", "gzip, snappy", "gzip,gzip,gzip,gzip"] {
        let error = codings(&headers(&[text])).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{text}");
        assert!(error.message().contains("Content-Encoding"), "{error}");
    }
}

#[tokio::test]
async fn several_codings_are_undone_in_turn() {
    let data = b"a,b\n1,2\n".repeat(1000);
    let packed = source(zstd(&gzip(&data)), &[7, 1000]);
    let twice = read(packed, &[Coding::Gzip, Coding::Zstd], "k.csv").await.unwrap();
    assert_eq!(twice, (data, true));
    let brotli = read(source(BROTLI.to_vec(), &[1]), &[Coding::Brotli], "k").await.unwrap();
    assert_eq!(brotli, (b"penstock\n".to_vec(), true));
}

#[tokio::test]
async fn a_packed_file_comes_with_one_layer_whoever_packed_it() {
    let data = b"a,b\n1,2\n".repeat(9000);
    for (coding, file, key) in [
        (Coding::Gzip, gzip(&data), "x.csv.gz"),
        (Coding::Gzip, gzip(&data), "dir/x.csv.GZ?sig=1"),
        (Coding::Zstd, zstd(&data), "x.csv.zst"),
    ] {
        let label = read(source(file.clone(), &[9000]), &[coding], key).await.unwrap();
        assert_eq!(label, (file.clone(), false), "{key}: the label of the file");
        let twice = if coding == Coding::Gzip { gzip(&file) } else { zstd(&file) };
        let packed = read(source(twice, &[9000]), &[coding], key).await.unwrap();
        assert_eq!(packed, (file, true), "{key}: packed on its way");
    }
    // Another name is no file that its reader would unpack.
    let unpacked = read(source(gzip(&data), &[9000]), &[Coding::Gzip], "x.gz.csv").await;
    assert_eq!(unpacked.unwrap(), (data, true));
}

#[tokio::test]
async fn what_is_not_packed_as_it_says_is_refused_by_name() {
    let data = b"a,b\n1,2\n".repeat(1000);
    for (coding, packed) in [
        (Coding::Gzip, gzip(&data)),
        (Coding::Deflate, zlib(&data)),
        (Coding::Zstd, zstd(&data)),
        (Coding::Brotli, BROTLI.to_vec()),
    ] {
        let mut cut = packed.clone();
        cut.truncate(packed.len() - 2);
        for wrong in [cut, b"plain text that nobody has packed".to_vec()] {
            let error = read(source(wrong, &[100]), &[coding], "k").await.unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{coding:?}");
            assert!(error.to_string().contains("Content-Encoding"), "{error}");
        }
        let nothing = read(source(Vec::new(), &[1]), &[coding], "k").await.unwrap();
        assert_eq!(nothing, (Vec::new(), true), "{coding:?}");
    }
}

#[tokio::test]
async fn a_bomb_comes_piece_by_piece() {
    // Blocks of one repeated byte: four bytes each, 128 KiB unpacked.
    let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    for _ in 0..4096 {
        let header: u32 = (128 << 10) << 3 | 1 << 1;
        bomb.extend_from_slice(&header.to_le_bytes()[..3]);
        bomb.push(b'x');
    }
    let mut body = unpacked(source(bomb, &[1 << 20]), &[Coding::Zstd], "k", "k").await.unwrap().0;
    let mut piece = vec![0; 64 << 10];
    for _ in 0..100 {
        assert!(body.read(&mut piece).await.unwrap() > 0);
    }
    // A window that is larger than HTTP allows is refused before its memory is taken.
    let wide = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let error = read(source(wide, &[100]), &[Coding::Zstd], "k").await.unwrap_err();
    assert!(error.to_string().contains("window"), "{error}");
}

#[test]
fn a_label_stands_beside_a_length_and_a_strong_tag() {
    let answer = |tag: &str, has_length: bool| {
        let mut headers = headers(&["gzip"]);
        headers.insert(ETAG, HeaderValue::from_str(tag).unwrap());
        if has_length {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("9"));
        }
        refuse_unless_label(&headers)
    };
    assert!(answer("\"a\"", true).is_ok());
    for (tag, has_length) in [("\"a\"", false), ("W/\"a\"", true)] {
        assert_eq!(answer(tag, has_length).unwrap_err().kind(), Kind::Corrupt);
    }
    assert!(refuse_unless_label(&HeaderMap::new()).is_ok());
}

/// Runs on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    static RUNTIME: Mutex<()> = Mutex::new(());
    let _turn = RUNTIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_byte_comes_back_in_whatever_pieces(
        seed in prop::collection::vec(any::<u8>(), 1..400),
        times in 1usize..600,
        steps in prop::collection::vec(1usize..5000, 1..5),
        coding in 0usize..4,
    ) {
        let data = seed.repeat(times);
        let (coding, packed) = match coding {
            0 => (Coding::Gzip, gzip(&data)),
            1 => (Coding::Deflate, zlib(&data)),
            2 => (Coding::Deflate, bare(&data)),
            _ => (Coding::Zstd, zstd(&data)),
        };
        let read = block_on(read(source(packed, &steps), &[coding], "k"));
        prop_assert_eq!(read.unwrap(), (data, true));
    }

    #[test]
    fn any_bytes_end_without_panic(bytes: Vec<u8>, coding in 0usize..4) {
        let coding = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd][coding];
        let magic = coding.file().1;
        for bytes in [bytes.clone(), [magic, &bytes].concat()] {
            let _ = block_on(read(source(bytes, &[50]), &[coding], "k.gz"));
        }
    }
}
