//! The ciphers by the vectors of those who made them, whatever the pieces that a message comes in;
//! beside `ring`, which is another hand's; and what no cipher can do.
#![allow(unsafe_code, clippy::unwrap_used)] // this test is the C side of the treaty

use penstock_base::Kind;
use penstock_ffi::*;
use std::ptr::{null, null_mut};

/// A key of McGrew and Viega's; shorter ones are its front.
const KEY: &str = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
const TEXT: &str = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
    1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
const ALSO: &str = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
const NONCE: &str = "cafebabefacedbaddecaf888";
const LONG_NONCE: &str = "9313225df88406e555909c5aff5269aa6a7a9538534f7da1e4c303d2a318a728\
    c3c0c95156809539fcf0e2429a6b525416aedbf5a0de6a57a637b39b";
/// Of an empty text, of 16 zeros, of the text, of its 60 bytes with other data, and then of those
/// with a nonce of 8 and of 60 bytes; for keys of 16, 24 and 32 bytes.
const SEALED: [[(&str, &str); 6]; 3] = [
    [
        ("", "58e2fccefa7e3061367f1d57a4e7455a"),
        ("0388dace60b6a392f328c2b971b2fe78", "ab6e47d42cec13bdf53a67b21257bddf"),
        (
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
             21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
            "4d5c2af327cd64a62cf35abd2ba6fab4",
        ),
        (
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
             21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            "61353b4c2806934a777ff51fa22a4755699b2a714fcdc6f83766e5f97b6c7423\
             73806900e49f24b22b097544d4896b424989b5e1ebac0f07c23f4598",
            "3612d2e79e3b0785561be14aaca2fccb",
        ),
        (
            "8ce24998625615b603a033aca13fb894be9112a5c3a211a8ba262a3cca7e2ca7\
             01e4a9a4fba43c90ccdcb281d48c7c6fd62875d2aca417034c34aee5",
            "619cc5aefffe0bfa462af43c1699d050",
        ),
    ],
    [
        ("", "cd33b28ac773f74ba00ed1f312572435"),
        ("98e7247c07f0fe411c267e4384b0f600", "2ff58d80033927ab8ef4d4587514f0fb"),
        (
            "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c\
             7d773d00c144c525ac619d18c84a3f4718e2448b2fe324d9ccda2710acade256",
            "9924a7c8587336bfb118024db8674a14",
        ),
        (
            "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c\
             7d773d00c144c525ac619d18c84a3f4718e2448b2fe324d9ccda2710",
            "2519498e80f1478f37ba55bd6d27618c",
        ),
        (
            "0f10f599ae14a154ed24b36e25324db8c566632ef2bbb34f8347280fc4507057\
             fddc29df9a471f75c66541d4d4dad1c9e93a19a58e8b473fa0f062f7",
            "65dcc57fcf623a24094fcca40d3533f8",
        ),
        (
            "d27e88681ce3243c4830165a8fdcf9ff1de9a1d8e6b447ef6ef7b79828666e45\
             81e79012af34ddd9e2f037589b292db3e67c036745fa22e7e9b7373b",
            "dcf566ff291c25bbb8568fc3d376a6d9",
        ),
    ],
    [
        ("", "530f8afbc74536b9a963b4f1c4cb738b"),
        ("cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"),
        (
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
             8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad",
            "b094dac5d93471bdec1a502270e3cc6c",
        ),
        (
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
             8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
        (
            "c3762df1ca787d32ae47c13bf19844cbaf1ae14d0b976afac52ff7d79bba9de0\
             feb582d33934a4f0954cc2363bc73f7862ac430e64abe499f47c9b1f",
            "3a337dbf46a792c45e454913fe2ea8f2",
        ),
        (
            "5a8def2f0c9e53f1f75d7853659e2a20eeb2b22aafde6419a058ab4f6f746bf4\
             0fc0c3b780f244452da3ebf1c5d82cdea2418997200ef82e44ae7e3f",
            "a44a8266ee1c8eb0c8b5d4cf5ae9f19a",
        ),
    ],
];
/// NIST SP 800-38A, F.5: keys and what becomes of the text.
const COUNTED: [(&str, &str); 3] = [
    (
        "2b7e151628aed2a6abf7158809cf4f3c",
        "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff\
         5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee",
    ),
    (
        "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
        "1abc932417521ca24f2b0459fe7e6e0b090339ec0aa6faefd5ccc2c6f4ce8e94\
         1e36b26bd1ebc670d1bd1d665620abf74f78a7f6d29809585a97daec58c6b050",
    ),
    (
        "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5\
         2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6",
    ),
];
const COUNTED_TEXT: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
    30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn lend(bytes: &[u8]) -> PsBytes {
    PsBytes { data: bytes.as_ptr(), len: bytes.len() }
}

fn kind_and_text(error: *mut PsError) -> (i32, String) {
    assert!(!error.is_null());
    // SAFETY: it came from the library.
    unsafe {
        let kind = ps_error_kind(error);
        let text = ps_error_message(error).text("the message").unwrap().to_string();
        ps_error_free(error);
        (kind, text)
    }
}

/// A message, and what is done with it.
struct Message(*mut PsMessage);

impl Message {
    fn new(is_gcm: bool, encrypts: bool, parts: [&[u8]; 3]) -> Result<Self, (i32, String)> {
        let [key, nonce, also] = parts.map(lend);
        let sealing = PsSealing { is_gcm, encrypts, key, nonce, also };
        let (mut out, mut error) = (null_mut(), null_mut());
        // SAFETY: readable bytes, writable out-parameters.
        if unsafe { ps_message_new(&sealing, &mut out, &mut error) } {
            Ok(Message(out))
        } else {
            Err(kind_and_text(error))
        }
    }

    /// In pieces of so many bytes, from one place to another one.
    fn apply(&self, text: &[u8], piece: usize) -> Vec<u8> {
        let mut out = vec![0; text.len()];
        for (from, to) in text.chunks(piece).zip(out.chunks_mut(piece)) {
            let mut error = null_mut();
            // SAFETY: a live message, and as many bytes on both sides.
            assert!(unsafe {
                ps_message_apply(self.0, from.as_ptr(), to.as_mut_ptr(), from.len(), &mut error)
            });
        }
        out
    }

    /// Within one buffer, from one offset to another one.
    fn apply_within(&self, buffer: &mut [u8], from: usize, to: usize, len: usize) {
        assert!(from.max(to) + len <= buffer.len());
        let (first, mut error) = (buffer.as_mut_ptr(), null_mut());
        // SAFETY: a live message, and both within the buffer.
        assert!(unsafe {
            ps_message_apply(self.0, first.add(from), first.add(to), len, &mut error)
        });
    }

    fn tag(&self, bytes: usize) -> Result<Vec<u8>, (i32, String)> {
        let (mut tag, mut error) = (vec![0; bytes], null_mut());
        // SAFETY: a live message and writable bytes.
        if unsafe { ps_message_tag(self.0, tag.as_mut_ptr(), bytes, &mut error) } {
            Ok(tag)
        } else {
            Err(kind_and_text(error))
        }
    }

    fn check(&self, tag: &[u8]) -> Result<(), (i32, String)> {
        let mut error = null_mut();
        // SAFETY: a live message and readable bytes.
        if unsafe { ps_message_check_tag(self.0, lend(tag), &mut error) } {
            Ok(())
        } else {
            Err(kind_and_text(error))
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: it came from the library.
        unsafe { ps_message_free(self.0) }
    }
}

#[test]
fn gcm_is_that_of_its_makers_in_pieces_of_any_size() {
    let (text, zeros) = (hex(TEXT), [0; 32]);
    for (key_bytes, sealed) in [16, 24, 32].into_iter().zip(SEALED) {
        let key = &hex(KEY)[..key_bytes];
        let key0 = &zeros[..key_bytes];
        let (nonce, long, also) = (hex(NONCE), hex(LONG_NONCE), hex(ALSO));
        let cases: [([&[u8]; 3], &[u8]); 6] = [
            ([key0, &zeros[..12], &[]], &[]),
            ([key0, &zeros[..12], &[]], &zeros[..16]),
            ([key, &nonce, &[]], &text),
            ([key, &nonce, &also], &text[..60]),
            ([key, &nonce[..8], &also], &text[..60]),
            ([key, &long, &also], &text[..60]),
        ];
        for ((parts, plain), (encrypted, tag)) in cases.into_iter().zip(sealed) {
            for piece in [1, 5, 16, 17, 64] {
                let message = Message::new(true, true, parts).unwrap();
                assert_eq!(message.apply(plain, piece), hex(encrypted), "{key_bytes}, {piece}");
                assert_eq!(message.tag(16).unwrap(), hex(tag), "{key_bytes}, {piece}");
                let message = Message::new(true, false, parts).unwrap();
                assert_eq!(message.apply(&hex(encrypted), piece), plain);
                message.check(&hex(tag)).unwrap();
            }
        }
    }
}

#[test]
fn ctr_is_that_of_nist_and_its_counter_carries() {
    let (text, nonce) = (hex(COUNTED_TEXT), hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"));
    for (key, encrypted) in COUNTED {
        for (encrypts, from, to) in
            [(true, &text, hex(encrypted)), (false, &hex(encrypted), text.clone())]
        {
            for piece in [1, 16, 23, 64] {
                let message = Message::new(false, encrypts, [&hex(key), &nonce, &[]]).unwrap();
                assert_eq!(message.apply(from, piece), to, "{key}, {piece}");
            }
        }
    }
    // By OpenSSL: of 128 bits, and not of the last 32.
    let last = Message::new(false, true, [&hex(KEY), &[0xff; 16], &[]]).unwrap();
    let carried = "5e5d04d3895c1d6f5e1819ac561fc5adacbef20579b4b8ebce889bac8732dad7\
                   e99063228cc5bf26df628a3a521434f5";
    assert_eq!(last.apply(&[0; 48], 48), hex(carried));
}

#[test]
fn long_messages_are_those_of_ring_wherever_they_lie() {
    let (key, nonce, also) = (hex(KEY), hex(NONCE), hex(ALSO));
    let sealing = ring::aead::UnboundKey::new(&ring::aead::AES_256_GCM, &key).unwrap();
    let sealing = ring::aead::LessSafeKey::new(sealing);
    for len in [1, 15, 16, 127, 128, 129, 272, 1000, 4095, 4096, 4097, 8192, 70_000, 262_144] {
        let plain: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut expected = plain.clone();
        let once = ring::aead::Nonce::try_assume_unique_for_key(&nonce).unwrap();
        let tag = sealing
            .seal_in_place_separate_tag(once, ring::aead::Aad::from(&also), &mut expected)
            .unwrap();
        for (from, to) in [(0, 0), (16, 0), (0, 16), (1, 0), (0, 1), (0, 5000), (5000, 0)] {
            let parts = [&key[..], &nonce, &also];
            let mut buffer = vec![0; len + 5000];
            buffer[from..from + len].copy_from_slice(&plain);
            let message = Message::new(true, true, parts).unwrap();
            message.apply_within(&mut buffer, from, to, len);
            assert!(buffer[to..to + len] == expected, "{len} bytes, {from} to {to}");
            assert_eq!(message.tag(16).unwrap(), tag.as_ref());
            let message = Message::new(true, false, parts).unwrap();
            message.apply_within(&mut buffer, to, from, len);
            assert!(buffer[from..from + len] == plain, "{len} bytes, {to} to {from}");
            message.check(tag.as_ref()).unwrap();
        }
    }
}

#[test]
fn a_changed_bit_a_wrong_key_and_a_wrong_end_are_noticed() {
    let (key, nonce, also, text) = (hex(KEY), hex(NONCE), hex(ALSO), hex(TEXT));
    let message = Message::new(true, true, [&key, &nonce, &also]).unwrap();
    let encrypted = message.apply(&text, 64);
    let tag = message.tag(16).unwrap();
    let judged = |parts: [&[u8]; 3], bytes: &[u8], tag: &[u8]| {
        let message = Message::new(true, false, parts).unwrap();
        message.apply(bytes, 64);
        message.check(tag)
    };
    let flipped = |bytes: &[u8], bit: usize| {
        let mut bytes = bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    let parts = [&key[..], &nonce, &also];
    judged(parts, &encrypted, &tag).unwrap();
    judged(parts, &encrypted, &tag[..12]).unwrap();
    let mut wrong = vec![
        judged([&flipped(&key, 9), &nonce, &also], &encrypted, &tag),
        judged([&key[..16], &nonce, &also], &encrypted, &tag),
        judged([&key, &flipped(&nonce, 95), &also], &encrypted, &tag),
        judged([&key, &nonce, &flipped(&also, 0)], &encrypted, &tag),
        judged([&key, &nonce, &also[1..]], &encrypted, &tag),
        judged(parts, &encrypted[..63], &tag),
        judged(parts, &[], &tag),
    ];
    wrong.extend((0..128).map(|bit| judged(parts, &encrypted, &flipped(&tag, bit))));
    wrong.extend((0..512).step_by(37).map(|bit| judged(parts, &flipped(&encrypted, bit), &tag)));
    for outcome in wrong {
        let (kind, text) = outcome.unwrap_err();
        assert_eq!(kind, Kind::Invalid as i32);
        assert!(text.starts_with("Computed AES tag differs from read AES tag"), "{text}");
    }
}

#[test]
fn what_no_cipher_can_do_is_refused() {
    let (key, nonce) = (hex(KEY), hex(NONCE));
    for bytes in [0, 1, 15, 17, 31] {
        let (kind, text) = Message::new(true, true, [&key[..bytes], &nonce, &[]]).err().unwrap();
        assert_eq!(kind, Kind::Invalid as i32);
        assert!(text.contains(&format!("no key of {bytes} bytes")) && text.contains("16, 24 or"));
    }
    for (is_gcm, nonce) in [(true, &nonce[..0]), (false, &nonce[..]), (false, &[])] {
        let (kind, text) = Message::new(is_gcm, true, [&key, nonce, &[]]).err().unwrap();
        assert_eq!(kind, Kind::Internal as i32);
        assert!(text.contains(&format!("no nonce of {} bytes", nonce.len())), "{text}");
    }
    let message = Message::new(true, true, [&key, &nonce, &[]]).unwrap();
    assert!(message.tag(0).is_err() && message.tag(17).is_err());
    message.tag(4).unwrap();
    assert!(message.tag(16).unwrap_err().1.contains("has ended"));
    assert!(Message::new(false, true, [&key, &[0; 16], &[]]).unwrap().tag(16).is_err());
    let mut error = null_mut();
    // SAFETY: nulls are what is tried.
    unsafe {
        assert!(!ps_message_new(null(), null_mut(), &mut error));
        kind_and_text(error);
        assert!(!ps_message_apply(null_mut(), null(), null_mut(), 0, &mut error));
        kind_and_text(error);
        let message = Message::new(true, true, [&key, &nonce, &[]]).unwrap();
        assert!(ps_message_apply(message.0, null(), null_mut(), 0, &mut error));
        assert!(!ps_message_apply(message.0, null(), null_mut(), 1, &mut error));
        kind_and_text(error);
        assert!(!ps_random(null_mut(), 1, &mut error));
        kind_and_text(error);
        ps_message_free(null_mut());
    }
}

#[test]
fn random_bytes_differ_and_digests_are_known() {
    let (mut one, mut other, mut error) = ([0; 32], [0; 32], null_mut());
    let (mut digest, mut keyed) = ([0; 32], [0; 32]);
    // SAFETY: as many writable bytes as are asked for.
    unsafe {
        assert!(ps_random(one.as_mut_ptr(), 32, &mut error));
        assert!(ps_random(other.as_mut_ptr(), 32, &mut error));
        assert!(ps_random(other.as_mut_ptr(), 0, &mut error));
        assert!(ps_sha256(lend(b"abc"), digest.as_mut_ptr(), &mut error));
        let text = lend(b"what do ya want for nothing?");
        assert!(ps_hmac_sha256(lend(b"Jefe"), text, keyed.as_mut_ptr(), &mut error));
    }
    assert!(one != other && one != [0; 32]);
    // FIPS 180-2 and RFC 4231.
    let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(digest.to_vec(), hex(known));
    let known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(keyed.to_vec(), hex(known));
}
