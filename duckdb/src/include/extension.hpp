// The pieces that the entry point puts together.
#pragma once

#include "query.hpp"

namespace penstock {

//! Gives COPY and EXPORT to our paths a barrier, so that their uploads may overlap.
void RegisterBarrier(DBConfig &config, const shared_ptr<Engine> &engine);
//! Tells the engine which files a statement will read, and whether it may end before they do.
void RegisterScans(DBConfig &config, const shared_ptr<Engine> &engine);
//! True while this thread makes DuckDB believe that another extension begins to load.
extern thread_local bool extension_load_is_pretended;
//! Lets ATTACH reach our URLs without httpfs and azure.
void RegisterAttach(DBConfig &config, const shared_ptr<Engine> &engine);
//! Lets DuckDB encrypt without httpfs; whoever has given it ciphers before keeps that.
void RegisterEncryption(DBConfig &config);
//! The penstock_* settings, checked by the engine's table when they are set.
void RegisterSettings(DBConfig &config);
//! penstock_settings(), penstock_stats(), penstock_requests(), penstock_clear_cache() and others that tell.
void RegisterFunctions(ExtensionLoader &loader, const shared_ptr<Engine> &engine);
//! Registers a function with what duckdb_functions() shows of it.
void RegisterDescribed(ExtensionLoader &loader, TableFunction function, FunctionDescription description);
//! The secret types that nobody registered yet, until somebody else does.
void RegisterSecrets(DatabaseInstance &db);
//! The log type HTTPFSInfo, until httpfs brings its own.
void RegisterLogTypes(DatabaseInstance &db);
//! The settings whose callbacks httpfs brings, if it is loaded later.
void RegisterHandedOver(DatabaseInstance &db);
//! Makes every connection, open or to come, tell when its statements begin and end.
void RegisterConnections(DatabaseInstance &db, const shared_ptr<Engine> &engine);

} // namespace penstock
