// The entry point: puts the pieces together, in an order in which a failure leaves nothing behind.
#include "extension.hpp"

#include "file_system.hpp"
#include "volume_file_system.hpp"

#include "duckdb/planner/extension_callback.hpp"

namespace penstock {

namespace {

class ConnectionCallback : public ExtensionCallback {
public:
	explicit ConnectionCallback(shared_ptr<Engine> engine) : engine(std::move(engine)) {
	}
	void OnConnectionOpened(ClientContext &context) override {
		ClientIo::Get(context, engine);
	}
	void OnExtensionLoaded(DatabaseInstance &, const string &name) override {
		engine->settings.Resolve(name);
	}

private:
	shared_ptr<Engine> engine;
};

void Load(ExtensionLoader &loader) {
	loader.SetDescription("Reads and writes S3, Azure, GCS, R2 and HTTP; keeps databases on NVMe devices");
	auto &db = loader.GetDatabaseInstance();
	auto &config = DBConfig::GetConfig(db);
	auto engine = make_shared_ptr<Engine>(db);
	RegisterSettings(config);
	engine->settings.Resolve("");
	RegisterFunctions(loader, engine);
	RegisterWrapFunctions(loader, engine);
	RegisterSecrets(db);
	RegisterLogTypes(db);
	RegisterHandedOver(db);
	RegisterProfile(loader);
	RegisterBarrier(config, engine);
	RegisterScans(config, engine);
	RegisterAttach(config, engine);
	RegisterEncryption(config);
	RegisterConnections(db, engine);
	db.GetFileSystem().RegisterSubSystem(make_uniq<PenstockFileSystem>(engine));
	db.GetFileSystem().RegisterSubSystem(make_uniq<VolumeFileSystem>(engine));
}

} // namespace

void RegisterConnections(DatabaseInstance &db, const shared_ptr<Engine> &engine) {
	ExtensionCallback::Register(DBConfig::GetConfig(db), make_shared_ptr<ConnectionCallback>(engine));
	for (auto &context : ConnectionManager::Get(db).GetConnectionList()) {
		ClientIo::Get(*context, engine);
	}
}

} // namespace penstock

extern "C" {

DUCKDB_CPP_EXTENSION_ENTRY(penstock, loader) {
	penstock::Load(loader);
}
}
