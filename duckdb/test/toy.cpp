// A small extension with file systems of its own, which tests wrap on every DuckDB: PyPI has httpfs for some only.
//
// It asks a server that lets everybody in, such as `penstock-fake s3 --anonymous`, by plain HTTP, a connection for each
// request. It treats DuckDB as httpfs does: a HEAD to open, none where DuckDB knows the object; a GET for each read,
// of the version that was opened; a PUT when a file is closed.
#include "compat.hpp"

#include <fnmatch.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

namespace toy {

using namespace penstock; // NOLINT: its names for what differs between versions of DuckDB

struct Answer {
	int status = 0;
	string head;
	string body;

	//! Empty where there is no such line.
	string Header(const string &name) const {
		auto at = StringUtil::Lower(head).find("\r\n" + name + ": ");
		if (at == string::npos) {
			return string();
		}
		auto begin = at + name.size() + 4;
		return head.substr(begin, head.find("\r\n", begin) - begin);
	}
};

class Socket {
public:
	explicit Socket(const string &address) : fd(socket(AF_INET, SOCK_STREAM, 0)) {
		auto parts = StringUtil::Split(address, ':');
		sockaddr_in to {};
		to.sin_family = AF_INET;
		to.sin_port = htons(static_cast<uint16_t>(std::stoi(parts.at(1))));
		inet_pton(AF_INET, parts[0].c_str(), &to.sin_addr);
		if (connect(fd, reinterpret_cast<sockaddr *>(&to), sizeof(to)) != 0) {
			close(fd);
			throw IOException("toy: nobody listens at %s", address);
		}
	}
	~Socket() {
		close(fd);
	}
	void Send(const string &text) {
		for (size_t sent = 0; sent < text.size();) {
			auto count = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
			if (count <= 0) {
				throw IOException("toy: the connection was cut");
			}
			sent += count;
		}
	}
	string ReadToEnd() {
		string text;
		vector<char> buffer(1 << 16);
		for (;;) {
			auto count = recv(fd, buffer.data(), buffer.size(), 0);
			if (count <= 0) {
				return text;
			}
			text.append(buffer.data(), count);
		}
	}

private:
	const int fd;
};

//! Asks the server; any status is an answer.
Answer Ask(optional_ptr<FileOpener> opener, const string &method, const string &target, const string &headers = "",
           const string &body = "") {
	Value address;
	if (!opener || !LookupSetting(*opener, "toy_server", address)) {
		throw InvalidInputException("toy: SET toy_server comes first");
	}
	Socket socket(address.ToString());
	auto length = body.empty() && method != "PUT" ? "" : "Content-Length: " + to_string(body.size()) + "\r\n";
	socket.Send(method + " " + target + " HTTP/1.1\r\nHost: toy\r\nConnection: close\r\n" + headers + length + "\r\n" +
	            body);
	auto text = socket.ReadToEnd();
	auto end = text.find("\r\n\r\n");
	if (end == string::npos) {
		throw IOException("toy: the connection was cut");
	}
	Answer answer;
	answer.head = text.substr(0, end + 2);
	answer.body = text.substr(end + 4);
	answer.status = std::stoi(answer.head.substr(9, 3));
	auto told = answer.Header("content-length");
	if (method != "HEAD" && !told.empty() && std::stoull(told) != answer.body.size()) {
		throw IOException("toy: %s of %s bytes was cut after %d", target, told, answer.body.size());
	}
	return answer;
}

void Refuse(const Answer &answer, const string &what) {
	throw IOException("toy: %s: HTTP %d %s", what, answer.status, answer.body.substr(0, 200));
}

class ToyHandle : public FileHandle {
public:
	ToyHandle(FileSystem &fs, const string &path, string target, FlagsArg flags, optional_ptr<FileOpener> opener)
	    : FileHandle(fs, path, flags), target(std::move(target)), opener(opener) {
	}
	void Close() override {
		if (!flags.OpenForWriting() || is_closed) {
			return;
		}
		is_closed = true;
		auto answer = Ask(opener, "PUT", target, "", written);
		if (answer.status != 200) {
			Refuse(answer, "writing " + path);
		}
	}
#if PENSTOCK_DUCKDB_2
	bool CanSeek() override {
		return true;
	}
#endif

	//! With the bucket.
	const string target;
	const optional_ptr<FileOpener> opener;
	int64_t size = 0;
	string tag;
	timestamp_t modified {0};
	idx_t position = 0;
	string written;
	//! Published or given up.
	bool is_closed = false;
};

ToyHandle &Toy(FileHandle &handle) {
	return handle.Cast<ToyHandle>();
}

timestamp_t Moment(const string &text) {
	tm parts {};
	strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
	return timestamp_t(timegm(&parts) * 1000000LL);
}

//! Serves the URLs of one scheme.
class ToyFileSystem : public FileSystem {
public:
	ToyFileSystem(string name, string scheme) : name(std::move(name)), scheme(std::move(scheme)) {
	}
	string GetName() const override {
		return name;
	}
	bool CanHandleFile(const string &path) override {
		return StringUtil::StartsWith(path, scheme);
	}

	void Read(FileHandle &handle, void *buffer, int64_t size, idx_t location) override {
		auto &toy = Toy(handle);
		if (size == 0) {
			return;
		}
		auto range = "Range: bytes=" + to_string(location) + "-" + to_string(location + size - 1) + "\r\n";
		auto answer = Ask(toy.opener, "GET", toy.target, range + "If-Match: " + toy.tag + "\r\n");
		if (answer.status != 206 || answer.body.size() != static_cast<size_t>(size)) {
			Refuse(answer, "reading " + toy.path);
		}
		memcpy(buffer, answer.body.data(), answer.body.size());
	}
	int64_t Read(FileHandle &handle, void *buffer, int64_t size) override {
		auto &toy = Toy(handle);
		auto count = MinValue<int64_t>(size, toy.size - static_cast<int64_t>(toy.position));
		if (count <= 0) {
			return 0;
		}
		Read(handle, buffer, count, toy.position);
		toy.position += count;
		return count;
	}
	int64_t Write(FileHandle &handle, void *buffer, int64_t size) override {
		Toy(handle).written.append(static_cast<char *>(buffer), size);
		return size;
	}
	void FileSync(FileHandle &) override {
	}
	int64_t GetFileSize(FileHandle &handle) override {
		auto &toy = Toy(handle);
		return toy.flags.OpenForWriting() ? static_cast<int64_t>(toy.written.size()) : toy.size;
	}
	timestamp_t GetLastModifiedTime(FileHandle &handle) override {
		return Toy(handle).modified;
	}
	string GetVersionTag(FileHandle &handle) override {
		return Toy(handle).tag;
	}
	FileType GetFileType(FileHandle &) override {
		return FileType::FILE_TYPE_REGULAR;
	}
	void Seek(FileHandle &handle, idx_t location) override {
		Toy(handle).position = location;
	}
	void Reset(FileHandle &handle) override {
		Toy(handle).position = 0;
	}
	idx_t SeekPosition(FileHandle &handle) override {
		return Toy(handle).position;
	}
	bool CanSeek() override {
		return true;
	}
	bool OnDiskFile(FileHandle &) override {
		return false;
	}
	bool IsPipe(const string &, optional_ptr<FileOpener>) override {
		return false;
	}
	string PathSeparator(const string &) override {
		return "/";
	}

	bool FileExists(const string &path, optional_ptr<FileOpener> opener) override {
		return Ask(opener, "HEAD", Target(path)).status == 200;
	}
	void RemoveFile(const string &path, optional_ptr<FileOpener> opener) override {
		Ask(opener, "DELETE", Target(path));
	}
	bool DirectoryExists(const string &path, optional_ptr<FileOpener> opener) override {
		return !Names(path + "/", opener).empty();
	}
	void CreateDirectory(const string &, optional_ptr<FileOpener>) override {
	}
	void CreateDirectoriesRecursive(const string &, optional_ptr<FileOpener>) override {
	}
	vector<OpenFileInfo> Glob(const string &pattern, FileOpener *opener) override {
		auto wild = pattern.find_first_of("*?[");
		if (wild == string::npos) {
			return {OpenFileInfo(pattern)};
		}
		vector<OpenFileInfo> found;
		for (auto &path : Names(pattern.substr(0, wild), opener)) {
			if (fnmatch(pattern.c_str(), path.c_str(), 0) == 0) {
				found.emplace_back(path);
			}
		}
		return found;
	}
#if PENSTOCK_DUCKDB_2
	bool CreateDirectoryExtended(const string &, const CreateDirectoryOptions &, optional_ptr<FileOpener>) override {
		return false;
	}
	void AbortFileWrite(FileHandle &handle) override {
		Toy(handle).is_closed = true;
	}
#else
	FileMetadata Stats(FileHandle &handle) override {
		FileMetadata stats;
		stats.file_size = GetFileSize(handle);
		stats.last_modification_time = GetLastModifiedTime(handle);
		stats.file_type = GetFileType(handle);
		return stats;
	}
#endif

protected:
	unique_ptr<FileHandle> OpenFileExtended(const OpenFileInfo &file, FileOpenFlags flags,
	                                        optional_ptr<FileOpener> opener) override {
		auto handle = make_uniq<ToyHandle>(*this, file.path, Target(file.path), flags, opener);
		if (flags.OpenForWriting() || Known(file, *handle)) {
			return std::move(handle);
		}
		auto answer = Ask(opener, "HEAD", handle->target);
		if (answer.status == 404 && flags.ReturnNullIfNotExists()) {
			return nullptr;
		}
		if (answer.status != 200) {
			Refuse(answer, "opening " + file.path);
		}
		handle->size = std::stoll(answer.Header("content-length"));
		handle->tag = answer.Header("etag");
		handle->modified = Moment(answer.Header("last-modified"));
		return std::move(handle);
	}
	bool SupportsOpenFileExtended() const override {
		return true;
	}
	bool ListFilesExtended(const string &directory, const std::function<void(OpenFileInfo &info)> &callback,
	                       optional_ptr<FileOpener> opener) override {
		for (auto &path : Names(directory + "/", opener)) {
			OpenFileInfo info(path.substr(directory.size() + 1));
			callback(info);
		}
		return true;
	}
	bool SupportsListFilesExtended() const override {
		return true;
	}

private:
	string Target(const string &path) const {
		return "/" + path.substr(scheme.size());
	}
	//! Takes what DuckDB knows of an object, if that is enough to open it.
	static bool Known(const OpenFileInfo &file, ToyHandle &handle) {
		if (!file.extended_info) {
			return false;
		}
		auto &known = file.extended_info->options;
		auto size = known.find("file_size"), tag = known.find("etag"), modified = known.find("last_modified");
		if (size == known.end() || tag == known.end() || modified == known.end()) {
			return false;
		}
		handle.size = NumericCast<int64_t>(size->second.GetValue<uint64_t>());
		handle.tag = StringValue::Get(tag->second);
		handle.modified = modified->second.GetValue<timestamp_t>();
		return true;
	}
	//! The URLs that begin so.
	vector<string> Names(const string &path, optional_ptr<FileOpener> opener) const {
		auto slash = path.find('/', scheme.size());
		auto bucket = path.substr(scheme.size(), slash - scheme.size());
		auto answer = Ask(opener, "GET", "/" + bucket + "?list-type=2&prefix=" + path.substr(slash + 1));
		if (answer.status != 200) {
			Refuse(answer, "listing " + path);
		}
		vector<string> names;
		for (auto at = answer.body.find("<Key>"); at != string::npos; at = answer.body.find("<Key>", at + 5)) {
			auto key = answer.body.substr(at + 5, answer.body.find("</Key>", at) - at - 5);
			names.push_back(scheme + bucket + "/" + key);
		}
		return names;
	}

	const string name;
	const string scheme;
};

} // namespace toy

extern "C" {

DUCKDB_CPP_EXTENSION_ENTRY(toy, loader) {
	using namespace toy; // NOLINT
	auto &db = loader.GetDatabaseInstance();
	DBConfig::GetConfig(db).AddExtensionOption(Name("toy_server"), "HOST:PORT of the server", LogicalType::VARCHAR);
	// Penstock knows this name from httpfs, and this one not.
	db.GetFileSystem().RegisterSubSystem(make_uniq<ToyFileSystem>("S3FileSystem", "s3://"));
	db.GetFileSystem().RegisterSubSystem(make_uniq<ToyFileSystem>("ToyFileSystem", "toy://"));
}
}
