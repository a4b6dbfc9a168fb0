//! The in-memory log and catalog keep the promises of their ports, plain and behind a fault wrapper with its faults off.

use grandstand_store::catalog::Catalog;
use grandstand_store::conformance::{self, OpenCatalog, OpenLog};
use grandstand_store::faulty::{Director, Faults, Faulty};
use grandstand_store::log::Log;
use grandstand_store::memory::{MemoryCatalog, MemoryDisk, MemoryLog};

#[test]
fn the_log_keeps_its_promises() {
    conformance::log(&mut || -> OpenLog<'static> {
        let disk = MemoryDisk::default();
        Box::new(move || -> Box<dyn Log> { Box::new(MemoryLog::open(&disk)) })
    });
}

#[test]
fn the_catalog_keeps_its_promises() {
    conformance::catalog(&mut || -> OpenCatalog<'static> {
        let catalog = MemoryCatalog::new();
        Box::new(move || -> Box<dyn Catalog> { Box::new(catalog.clone()) })
    });
}

#[test]
fn a_wrapper_without_faults_changes_nothing() {
    let director = Director::new(Faults::OFF, 1, |_| panic!("no delay was asked for"));
    conformance::log(&mut || -> OpenLog<'static> {
        let (disk, director) = (MemoryDisk::default(), director.clone());
        Box::new(move || -> Box<dyn Log> { Box::new(Faulty::new(MemoryLog::open(&disk), &director)) })
    });
    conformance::catalog(&mut || -> OpenCatalog<'static> {
        let (catalog, director) = (MemoryCatalog::new(), director.clone());
        Box::new(move || -> Box<dyn Catalog> { Box::new(Faulty::new(catalog.clone(), &director)) })
    });
}
