//! ClusterRoles of callers whom the cluster knows: the core's table of roles and actions, in the words of its table of
//! permissions.

use std::collections::BTreeMap;

use rollhook_management::access::{Action, Role};
use serde_json::Value;

use super::rbac::{role, rule};
use crate::store::crd::GROUP;

pub(super) fn objects() -> Vec<Value> {
    all().map(|(name, rules)| role("ClusterRole", &name, None, rules)).collect()
}

/// The name and the rules of each role.
pub(super) fn all() -> impl Iterator<Item = (String, Vec<Value>)> {
    Role::ALL.into_iter().map(|named| (format!("rollhook-{named}"), rules(named)))
}

/// The rules of a role: one for each resource, with all of its verbs.
fn rules(named: Role) -> Vec<Value> {
    let mut verbs: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for permission in Action::ALL.iter().filter(|action| named.may(**action)).map(|action| action.permission()) {
        verbs.entry(permission.path()).or_default().push(permission.verb);
    }
    verbs.iter().map(|(path, verbs)| rule(GROUP, &[path], verbs)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the rules allow this, by the rules of RBAC.
    fn allow(object: &Value, resource: &str, verb: &str) -> bool {
        let has = |list: &Value, word: &str| list.as_array().unwrap().iter().any(|item| item == word);
        object["rules"].as_array().unwrap().iter().any(|rule| {
            has(&rule["apiGroups"], GROUP) && has(&rule["resources"], resource) && has(&rule["verbs"], verb)
        })
    }

    #[test]
    fn each_cluster_role_allows_cell_by_cell_what_the_role_may() {
        let objects = objects();
        assert_eq!(objects.len(), Role::ALL.len());
        for (named, object) in Role::ALL.into_iter().zip(&objects) {
            assert_eq!(object["metadata"]["name"], format!("rollhook-{named}"));
            let mut allowed = 0;
            for action in Action::ALL {
                let permission = action.permission();
                assert_eq!(allow(object, &permission.path(), permission.verb), named.may(*action), "{named}: {action}");
                allowed += usize::from(named.may(*action));
            }
            let cells = object["rules"]
                .as_array()
                .unwrap()
                .iter()
                .map(|rule| rule["resources"].as_array().unwrap().len() * rule["verbs"].as_array().unwrap().len());
            assert_eq!(cells.sum::<usize>(), allowed, "{named}: and nothing more");
        }
    }
}
