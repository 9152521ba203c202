// Gives DuckDB the ciphers of encrypted Parquet files, databases, logs and spilled buffers. DuckDB decides what is
// encrypted, with which key and nonce, and in which layout; the ciphers are those of the Rust library.
#include "extension.hpp"

namespace penstock {

namespace {

using MessageHandle = std::unique_ptr<ps_message, Freed<ps_message, ps_message_free>>;

ps_bytes Bytes(const_data_ptr_t data, idx_t len) {
	return ps_bytes {data, len};
}

//! One message after another, each with a key and a nonce of its own.
class State : public EncryptionState {
public:
	explicit State(unique_ptr<EncryptionStateMetadata> metadata) : EncryptionState(std::move(metadata)) {
	}

	void InitializeEncryption(EncryptionNonce &nonce, const_data_ptr_t key, const_data_ptr_t aad,
	                          idx_t aad_len) override {
		Begin(true, nonce, key, Bytes(aad, aad_len));
	}

	void InitializeDecryption(EncryptionNonce &nonce, const_data_ptr_t key, const_data_ptr_t aad,
	                          idx_t aad_len) override {
		Begin(false, nonce, key, Bytes(aad, aad_len));
	}

	size_t Process(const_data_ptr_t in, idx_t in_len, data_ptr_t out, idx_t out_len) override {
		if (out_len < in_len) {
			throw InvalidInputException("%llu encrypted bytes do not fit where there is room for %llu: the file is "
			                            "damaged",
			                            in_len, out_len);
		}
		ps_error *error = nullptr;
		Check(ps_message_apply(message.get(), in, out, in_len, &error), error);
		return in_len;
	}

	//! No bytes are left for the end in either mode.
	size_t Finalize(data_ptr_t, idx_t, data_ptr_t tag, idx_t tag_len) override {
		if (GetCipher() == EncryptionTypes::GCM) {
			ps_error *error = nullptr;
			Check(encrypts ? ps_message_tag(message.get(), tag, tag_len, &error)
			               : ps_message_check_tag(message.get(), Bytes(tag, tag_len), &error),
			      error);
		}
		message.reset();
		return 0;
	}

	void GenerateRandomData(data_ptr_t data, idx_t len) override {
		ps_error *error = nullptr;
		Check(ps_random(data, len, &error), error);
	}

private:
	void Begin(bool encrypts_p, EncryptionNonce &nonce, const_data_ptr_t key, ps_bytes also) {
		auto cipher = GetCipher();
		if (cipher != EncryptionTypes::GCM && cipher != EncryptionTypes::CTR) {
			throw NotImplementedException("Penstock encrypts by GCM and CTR, and this asks for another mode "
			                              "(number %d): LOAD httpfs, which may have it",
			                              int(cipher));
		}
		encrypts = encrypts_p;
		ps_sealing sealing {cipher == EncryptionTypes::GCM, encrypts, Bytes(key, metadata->GetKeyLen()),
		                    Bytes(nonce.data(), nonce.total_size()), also};
		ps_message *out = nullptr;
		ps_error *error = nullptr;
		Check(ps_message_new(&sealing, &out, &error), error);
		message.reset(out);
	}

	MessageHandle message;
	bool encrypts = false;
};

class Ciphers : public CiphersAndDigests {
public:
	shared_ptr<EncryptionState> CreateEncryptionState(unique_ptr<EncryptionStateMetadata> metadata) const override {
		return make_shared_ptr<State>(std::move(metadata));
	}

	void Sha256(const_data_ptr_t input, idx_t input_len, data_ptr_t output) const override {
		ps_error *error = nullptr;
		Check(ps_sha256(Bytes(input, input_len), output, &error), error);
	}

	void HmacSha256(const_data_ptr_t key, idx_t key_len, const_data_ptr_t input, idx_t input_len,
	                data_ptr_t output) const override {
		ps_error *error = nullptr;
		Check(ps_hmac_sha256(Bytes(key, key_len), Bytes(input, input_len), output, &error), error);
	}
};

} // namespace

void RegisterEncryption(DBConfig &config) {
	// httpfs sets its own whatever is there, and each reads what the other wrote.
	if (!config.encryption_util) {
		config.encryption_util = make_shared_ptr<Ciphers>();
	}
}

} // namespace penstock
