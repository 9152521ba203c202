//! The hash of GCM over eight blocks at once, for processors that multiply without carry in
//! registers of 256 bits (VPCLMULQDQ: AMD since 2020, Intel since 2019). It decides whether this
//! processor is one. What is left, and every other processor, is the crate `ghash`'s.
//!
//! The blocks are multiplied by powers of the key, summed up, and reduced once, by the equations
//! that `polyval` has for one register of 128 bits (<https://eprint.iacr.org/2025/2171>): the bytes
//! of a block are read backwards, and the key is multiplied by x, so that it is POLYVAL's hash.

/// Bytes that are hashed at once.
pub(crate) const WIDE_BYTES: usize = 128;

#[cfg(target_arch = "x86_64")]
pub(crate) use registers::WideHash;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use without::WideHash;

#[cfg(target_arch = "x86_64")]
mod registers {
    use super::WIDE_BYTES;
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x,
        _mm_shuffle_epi32, _mm_slli_si128, _mm_srli_si128, _mm_unpackhi_epi64, _mm_xor_si128,
        _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_clmulepi64_epi128,
        _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_shuffle_epi8,
        _mm256_xor_si256, _mm256_zextsi128_si256,
    };
    use zeroize::Zeroize;

    /// x^63 + x^62 + x^57, by which what is too long is folded back.
    const FOLD: i64 = 0xC200_0000_0000_0000_u64.cast_signed();
    /// What x^128 is in POLYVAL's field.
    const FIELD: u128 = 1 << 127 | 1 << 126 | 1 << 121 | 1;

    /// Two powers of the key, and what each is multiplied with for the other half of a block.
    #[derive(Clone, Copy)]
    struct Pair {
        power: [u64; 4],
        other: [u64; 4],
    }

    /// Powers of a key, the eighth and seventh first. Only a processor that can use them has some.
    pub(crate) struct WideHash([Pair; 4]);

    impl Drop for WideHash {
        fn drop(&mut self) {
            for pair in &mut self.0 {
                pair.power.zeroize();
                pair.other.zeroize();
            }
        }
    }

    impl WideHash {
        /// `None` where the processor lacks the instructions.
        pub(crate) fn new(key: &[u8; 16]) -> Option<Self> {
            let has = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("pclmulqdq")
                && is_x86_feature_detected!("vpclmulqdq");
            // SAFETY: the processor has them.
            has.then(|| unsafe { powers(key) })
        }

        /// Adds bytes to a sum, as many of the front as are hashed at once; the rest of them.
        pub(crate) fn add<'a>(&self, sum: &mut [u8; 16], bytes: &'a [u8]) -> &'a [u8] {
            let (front, rest) = bytes.as_chunks::<WIDE_BYTES>();
            // SAFETY: `new` saw that the processor has the instructions.
            unsafe { sum_up(&self.0, sum, front) };
            rest
        }
    }

    #[target_feature(enable = "avx2,pclmulqdq")]
    fn register(value: u128) -> __m128i {
        _mm_set_epi64x(((value >> 64) as u64).cast_signed(), (value as u64).cast_signed())
    }

    #[target_feature(enable = "avx2,pclmulqdq")]
    fn number(register: __m128i) -> u128 {
        let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(register, register)).cast_unsigned();
        u128::from(high) << 64 | u128::from(_mm_cvtsi128_si64(register).cast_unsigned())
    }

    /// Key times FOLD, by halves: with it one multiplication does what two would.
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn other(power: __m128i) -> __m128i {
        let folded = _mm_clmulepi64_si128::<0x10>(power, _mm_set_epi64x(FOLD, 0));
        _mm_xor_si128(_mm_shuffle_epi32::<0x4e>(power), folded)
    }

    /// Brings a product back to 128 bits: `high` as it is, `low` to be folded.
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn reduced(high: __m128i, low: __m128i) -> __m128i {
        let folded = _mm_clmulepi64_si128::<0x00>(low, _mm_set_epi64x(0, FOLD));
        let shifted = _mm_xor_si128(_mm_srli_si128::<8>(low), _mm_slli_si128::<8>(low));
        _mm_xor_si128(_mm_xor_si128(high, shifted), folded)
    }

    /// The product of a value and a power.
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn product(value: __m128i, power: __m128i) -> __m128i {
        let other = other(power);
        let high = _mm_xor_si128(
            _mm_clmulepi64_si128::<0x10>(value, other),
            _mm_clmulepi64_si128::<0x11>(value, power),
        );
        let low = _mm_xor_si128(
            _mm_clmulepi64_si128::<0x00>(value, other),
            _mm_clmulepi64_si128::<0x01>(value, power),
        );
        reduced(high, low)
    }

    #[target_feature(enable = "avx2,pclmulqdq,vpclmulqdq")]
    fn powers(key: &[u8; 16]) -> WideHash {
        let backwards = u128::from_be_bytes(*key);
        // Without a branch, since the key is secret.
        let is_long = 0_u128.wrapping_sub(backwards >> 127);
        let first = register(backwards << 1 ^ is_long & FIELD);
        let mut pairs = [Pair { power: [0; 4], other: [0; 4] }; 4];
        let mut power = first;
        for pair in pairs.iter_mut().rev() {
            let next = product(power, first);
            let halves = |one: __m128i, two: __m128i| {
                let (one, two) = (number(one), number(two));
                [one as u64, (one >> 64) as u64, two as u64, (two >> 64) as u64]
            };
            pair.power = halves(next, power);
            pair.other = halves(other(next), other(power));
            power = product(next, first);
        }
        WideHash(pairs)
    }

    #[target_feature(enable = "avx2")]
    fn wide(words: &[u64; 4]) -> __m256i {
        // SAFETY: 32 readable bytes, at any address.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2,pclmulqdq,vpclmulqdq")]
    fn sum_up(pairs: &[Pair; 4], sum: &mut [u8; 16], bytes: &[[u8; WIDE_BYTES]]) {
        let backwards = register(0x0001_0203_0405_0607_0809_0A0B_0C0D_0E0F);
        let backwards = _mm256_broadcastsi128_si256(backwards);
        let mut hashed = register(u128::from_be_bytes(*sum));
        for eight in bytes {
            let (mut high, mut low) = (_mm256_setzero_si256(), _mm256_setzero_si256());
            let mut before = _mm256_zextsi128_si256(hashed);
            for (two, pair) in eight.as_chunks::<32>().0.iter().zip(pairs) {
                // SAFETY: 32 readable bytes, at any address.
                let blocks = unsafe { _mm256_loadu_si256(two.as_ptr().cast()) };
                let blocks = _mm256_xor_si256(_mm256_shuffle_epi8(blocks, backwards), before);
                before = _mm256_setzero_si256();
                let (power, other) = (wide(&pair.power), wide(&pair.other));
                let first = _mm256_clmulepi64_epi128::<0x10>(blocks, other);
                let second = _mm256_clmulepi64_epi128::<0x11>(blocks, power);
                high = _mm256_xor_si256(high, _mm256_xor_si256(first, second));
                let first = _mm256_clmulepi64_epi128::<0x00>(blocks, other);
                let second = _mm256_clmulepi64_epi128::<0x01>(blocks, power);
                low = _mm256_xor_si256(low, _mm256_xor_si256(first, second));
            }
            let both = |it: __m256i| {
                _mm_xor_si128(_mm256_castsi256_si128(it), _mm256_extracti128_si256::<1>(it))
            };
            hashed = reduced(both(high), both(low));
        }
        *sum = number(hashed).to_be_bytes();
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod without {
    /// There is none.
    pub(crate) enum WideHash {}

    impl WideHash {
        pub(crate) fn new(_: &[u8; 16]) -> Option<Self> {
            None
        }

        pub(crate) fn add<'a>(&self, _: &mut [u8; 16], _: &'a [u8]) -> &'a [u8] {
            match *self {}
        }
    }
}
