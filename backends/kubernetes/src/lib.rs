//! rollhook's rollout driver on Kubernetes.
