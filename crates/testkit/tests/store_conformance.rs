//! The suite examines the reference model, then itself: broken stores must fail by name.

mod broken;

use broken::{Broken, Defect};
use penstock_store::{Capabilities, Store};
use penstock_testkit::conform::store::{Subject, failures, failures_among};
use penstock_testkit::model::{EVERYTHING, ModelStore};
use penstock_testkit::store_conformance;
use std::sync::Arc;

async fn model() -> Arc<dyn Store> {
    Arc::new(ModelStore::default())
}

store_conformance!(model_passes, model);

/// Taking one ability away must still pass, since the suite is gated in both directions.
#[tokio::test]
async fn each_missing_ability_is_examined_and_passes() {
    let without: [fn(&mut Capabilities); 5] = [
        |capabilities| capabilities.suffix_range = false,
        |capabilities| capabilities.conditional_put = false,
        |capabilities| capabilities.conditional_delete = false,
        |capabilities| capabilities.list_etag = false,
        |capabilities| capabilities.copy = false,
    ];
    for take_away in without {
        let mut capabilities = EVERYTHING;
        take_away(&mut capabilities);
        let make = || async move {
            Arc::new(ModelStore::with_capabilities(capabilities)) as Arc<dyn Store>
        };
        assert_eq!(failures(make).await, [] as [&str; 0], "{capabilities:?}");
    }
}

/// The canary: each defect is planted in a copy of the model, and the named cases must fail.
#[tokio::test]
async fn each_defect_fails_the_cases_named_for_it() {
    for (defect, cases) in broken::DEFECTS {
        let defect: Defect = *defect;
        let make =
            || async move { Subject::new(Arc::new(Broken::new(defect))).with_secret("hunter2") };
        let failed = failures_among(|name| cases.contains(&name), make).await;
        let mut expected = cases.to_vec();
        expected.retain(|case| !failed.contains(case));
        assert!(expected.is_empty(), "{defect:?} passed {expected:?}");
    }
}
