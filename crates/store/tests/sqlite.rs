//! The SQLite log and catalog keep the promises of their ports.

use std::rc::Rc;
use std::time::Duration;

use grandstand_store::catalog::Catalog;
use grandstand_store::conformance::{self, OpenCatalog, OpenLog};
use grandstand_store::faulty::{Director, Faults, Faulty};
use grandstand_store::log::Log;
use grandstand_store::sqlite::{DataDir, Durability, SqliteCatalog, SqliteLog};

/// A fresh data folder, removed when its last opener is dropped.
fn fresh() -> (Rc<tempfile::TempDir>, DataDir) {
    let tmp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(tmp.path()).unwrap();
    (Rc::new(tmp), dir)
}

fn logs(durability: Durability) -> impl FnMut() -> OpenLog<'static> {
    move || {
        let (tmp, dir) = fresh();
        Box::new(move || -> Box<dyn Log> {
            let _kept = &tmp;
            Box::new(SqliteLog::open(&dir, durability).unwrap())
        })
    }
}

#[test]
fn the_log_keeps_its_promises() {
    conformance::log(&mut logs(Durability::Fsync));
}

#[test]
fn the_log_keeps_its_promises_when_synced_at_intervals_or_never() {
    conformance::log(&mut logs(Durability::Interval(Duration::ZERO)));
    conformance::log(&mut logs(Durability::None));
}

#[test]
fn the_catalog_keeps_its_promises() {
    conformance::catalog(&mut || -> OpenCatalog<'static> {
        let (tmp, dir) = fresh();
        Box::new(move || -> Box<dyn Catalog> {
            let _kept = &tmp;
            Box::new(SqliteCatalog::open(&dir).unwrap())
        })
    });
}

#[test]
fn a_wrapper_without_faults_changes_nothing() {
    let director = Director::new(Faults::OFF, 1, |_| panic!("no delay was asked for"));
    conformance::log(&mut || -> OpenLog<'static> {
        let ((tmp, dir), director) = (fresh(), director.clone());
        Box::new(move || -> Box<dyn Log> {
            let _kept = &tmp;
            Box::new(Faulty::new(SqliteLog::open(&dir, Durability::Fsync).unwrap(), &director))
        })
    });
}
