//! Where each shell block of the book is run, and what its page takes for granted there.

/// A page with its shell blocks, in order.
pub(crate) struct Page {
    pub(crate) path: &'static str,
    pub(crate) blocks: &'static [Block],
}

pub(crate) struct Block {
    pub(crate) place: Place,
    /// Shell before the block: what the reader of the page has by then.
    pub(crate) given: &'static str,
    /// Commands of the text around the block, which are run after it.
    pub(crate) around: &'static [&'static str],
    /// Shell after the block: what the page says has come of it.
    pub(crate) then: &'static str,
    /// The block is the contents of this file.
    pub(crate) file: Option<&'static str>,
}

/// The surroundings of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A server on SQLite with the simulated cluster, a git host and a receiver.
    Server,
    /// A cluster in which the chart is installed as the book installs it, and a server on its store.
    Cluster,
    /// A cluster with nothing in it, and a PostgreSQL server.
    Bare,
    /// A machine with Docker.
    Docker,
    /// Nowhere: `elsewhere.rs` has all commands of the block.
    Elsewhere,
}

const fn on(place: Place) -> Block {
    Block { place, given: "", around: &[], then: "", file: None }
}

impl Block {
    const fn given(self, given: &'static str) -> Self {
        Self { given, ..self }
    }

    const fn around(self, around: &'static [&'static str]) -> Self {
        Self { around, ..self }
    }

    const fn then(self, then: &'static str) -> Self {
        Self { then, ..self }
    }

    const fn file(self, file: &'static str) -> Self {
        Self { file: Some(file), ..self }
    }
}

/// The pages that have something to run there.
pub(crate) fn pages_on(place: Place) -> impl Iterator<Item = &'static Page> {
    PAGES.iter().filter(move |page| page.blocks.iter().any(|block| block.place == place))
}

const fn page(path: &'static str, blocks: &'static [Block]) -> Page {
    Page { path, blocks }
}

use Place::{Bare, Cluster, Docker, Elsewhere, Server};

/// A server, whose log `kubectl logs` shows. A pattern need not be in it.
const RUNBOOK: &str = "
    serve_cluster
    rollhook login $URL --token-file admin-token
    show_log
    grep() { command grep \"$@\" || [ $? = 1 ]; }";

pub(crate) const PAGES: &[Page] = &[
    page(
        "docs/access.md",
        &[
            on(Server).given("rollhook login $URL --token-file admin-token").around(&["rollhook context list"]).then("rollhook token list | grep dashboard"),
            on(Server)
                .given("curl -fsS -o signed-in -H 'Sec-Fetch-Site: same-origin' --data-urlencode token@admin-token $URL/sign-in")
                .then("rollhook audit | grep 'session .*, ended'"),
            on(Cluster)
                .given(
                    "helm upgrade rollhook packaging/helm/rollhook --namespace rollhook --wait --reuse-values \
                       --set kubernetesIdentity.enabled=true
                    serve_cluster --kubernetes-identity
                    kubectl create namespace ci",
                )
                .then("rollhook --server $URL whoami | grep system:serviceaccount:ci:deployer"),
            on(Server).then("rollhook audit --limit 20 | grep ci-shop"),
        ],
    ),
    page(
        "docs/apps.md",
        &[on(Server)
            .given(
                "rollhook login $URL --token-file admin-token --project shop --environment test
                rollhook app create api --image registry.example.com/api:v1 --settle 0s --wait
                rollhook completions bash | grep -c rollhook",
            )
            .around(&["source <(rollhook completions bash)"])
            .then("rollhook app runs api | grep 'bin/rails runner script/fix_orders.rb *succeeded *0'"),
        on(Server).then("fails rollhook app deploy api registry.example.com/api:v2")],
    ),
    page(
        "docs/checks.md",
        &[on(Server)
            .given(
                "rollhook login $URL --token-file admin-token --project shop --environment test
                rollhook app create api --image registry.example.com/api:v1 --settle 0s --wait
                PROMETHEUS_TOKEN=hunter2-hunter2",
            )
            .around(&["rollhook app check remove api errors"])
            .then(
                "rollhook app check list api | grep 'front-page *http'; rollhook app show api | grep 2m
                rollhook app check list api | grep 'smoke *command'",
            ),
        on(Server).then("rollhook app check list api | grep 'each *http'"),
        on(Server).then("rollhook app check list api | grep 'smoke *webhook'"),
        on(Server).then("rollhook app check list api | grep 'latency *prometheus'")],
    ),
    page(
        "docs/verification.md",
        &[on(Server)
            .given(
                "rollhook login $URL --token-file admin-token --project shop --environment test
                rollhook app create api --image registry.example.com/api:v1 --settle 0s --wait",
            )
            .then("rollhook app check list api | grep 'errors *prometheus.*ask'"),
        on(Server)
            .given(
                "rollhook app check add api errors prometheus https://prometheus.invalid --query up --condition '< 0.1' \\
                  --every 1s --failures 1 --without-verdict ask
                rollhook app deploy api registry.example.com/api:v2
                for i in $(seq 60); do rollhook app status api | grep 'waits for a person' && break; sleep 1; done",
            )
            .then("rollhook app history api --revision 2 | grep 'accepted by '"),
        on(Server).then("rollhook app show api | grep 'watch *30m'")],
    ),
    page("docs/following.md", &[on(Elsewhere)]),
    page("docs/registries.md", &[on(Elsewhere), on(Elsewhere), on(Elsewhere)]),
    page(
        "docs/configuration.md",
        &[on(Server)
            .given(
                "rollhook login $URL --token-file admin-token --project shop --environment test
                rollhook app create api --image registry.example.com/api:v1 --settle 0s --wait
                echo postgres://u:p@db/shop > database-url",
            )
            .then("rollhook app config list api | grep 'DATABASE_URL *(secret)'"),
        on(Server).then("rollhook app config list api | grep 'FEATURE_SEARCH *on'"),
        on(Docker)
            .given(
                "image v1
                docker network create shop
                docker run -d --name web --network $NETWORK $REGISTRY/shop/web:v1
                serve rollhook-server --driver docker
                export ROLLHOOK_SERVER=$URL ROLLHOOK_TOKEN_FILE=.local/share/rollhook/admin-token
                export ROLLHOOK_PROJECT=shop ROLLHOOK_ENVIRONMENT=prod
                rollhook app create web --settle 1s --wait",
            )
            .then("docker inspect web | grep '\"Memory\": 0,'; docker inspect web | grep /var/lib/app; docker inspect web | grep '\"shop\"'
                docker rm -f web; docker network rm shop; docker volume rm data")],
    ),
    page(
        "docs/ci.md",
        &[on(Server)
            .given(
                "rollhook login $URL --token-file admin-token --project shop --environment test
                rollhook app create api --image registry.example.com/shop/api:v1 --settle 0s --wait
                rollhook app webhook enable api
                export SERVICE_WEBHOOK_URL=$URL/api/v1/webhook/shop-test/api
                export SERVICE_WEBHOOK_TOKEN=$(rollhook app webhook status api --token)
                export GITHUB_SHA=1a2b3c4d5e6f7a8b9c0d1a2b3c4d5e6f7a8b9c0d",
            )
            .then("rollhook app history api | grep 'shop/api:1a2b3c4.*(current)'")],
    ),
    page(
        "docs/git-apps.md",
        &[
            on(Server)
                .given("rollhook login $URL --token-file admin-token --project shop --environment test")
                .around(&["rollhook app set api --poll 5m"])
                .then("rollhook app history api | grep \"$COMMIT.*(current)\""),
            on(Docker).file("build").given("image v1; mkdir source; cp Dockerfile healthz jobs source").then(
                "export ROLLHOOK_IMAGE=$REGISTRY/shop/api:abc ROLLHOOK_CONTEXT=source ROLLHOOK_DOCKERFILE=Dockerfile
                ./build | tail -n 1 | grep $REGISTRY/shop/api@sha256:",
            ),
            on(Cluster).given("mkdir credentials; echo '{}' > config.json").then("kubectl get networkpolicy -n rollhook-builds"),
            on(Server).given("mkdir DIR").then("grep ssh- DIR/known_hosts"),
        ],
    ),
    page(
        "docs/gitops.md",
        &[
            // Helm meets rollhook without a setting first: in a conflict, and before server-side apply without a word.
            on(Cluster)
                .given(
                    "mkdir -p web/templates
                    printf '%s\\n' 'apiVersion: v2' 'name: web' 'version: 0.1.0' > web/Chart.yaml
                    echo 'image: registry.example.com/web:v1' > web/values.yaml
                    kubectl create deployment web --image chart/web --namespace shop-test --dry-run=client -o yaml |
                      sed 's|image: chart/web|image: {{ .Values.image }}|; /creationTimestamp/d; /^status/d' > web/templates/deployment.yaml
                    helm install web ./web --namespace shop-test
                    serve_cluster
                    rollhook login $URL --token-file admin-token
                    rollhook app create web -p shop -e test --settle 0s --wait 2> notes
                    grep 'field manager \"helm\" sets the image' notes
                    rollhook app deploy web registry.example.com/web:v2 -p shop -e test --wait
                    fails helm upgrade web ./web --namespace shop-test 2> refusal
                    grep 'conflict.*rollhook' refusal
                    test $(rollhook app image web -p shop -e test) = registry.example.com/web:v2",
                )
                .then(
                    "running() { kubectl get deployment web --namespace shop-test -o jsonpath='{.spec.template.spec.containers[0].image}'; }
                    test $(running) = registry.example.com/web:v2
                    helm upgrade web ./web --namespace shop-test --reset-values --server-side=false
                    test $(running) = registry.example.com/web:v1
                    rollhook app show web -p shop -e test | grep helm
                    rollhook app deploy web registry.example.com/web:v3 -p shop -e test --wait",
                ),
            on(Cluster).then(
                "sed -i 's/{{ .Values.image }}/{{ include \"web.image\" . }}/' web/templates/deployment.yaml
                helm upgrade web ./web --namespace shop-test
                test $(running) = registry.example.com/web:v3
                rollhook app deploy web registry.example.com/web:v4 -p shop -e test --wait
                helm upgrade web ./web --namespace shop-test
                helm upgrade web ./web --namespace shop-test --server-side=false
                test $(running) = registry.example.com/web:v4
                rollhook app rollback web -p shop -e test --wait
                helm upgrade web ./web --namespace shop-test",
            ),
        ],
    ),
    page(
        "docs/install.md",
        &[
            on(Cluster).given("make_secrets").around(&["helm show values packaging/helm/rollhook"]).then(
                "fails helm install second packaging/helm/rollhook --namespace second --create-namespace \
                   --set image.repository=registry.example.com/rollhook-server --set secrets.create=false 2> refusal
                grep 'invalid ownership metadata' refusal",
            ),
            on(Cluster).given("serve_cluster").then(
                "kubectl get service rollhook --namespace rollhook -o jsonpath='{.spec.ports[*].port}' | grep -x 80",
            ),
            on(Server)
                .given(
                    "mkdir -p root/usr/local/bin root/etc/systemd/system root/var/lib/rollhook
                    cp bin/rollhook bin/rollhook-server .
                    cp admin-token root/var/lib/rollhook/
                    touch kubeconfig",
                )
                .then("root/usr/local/bin/rollhook whoami"),
            on(Server).file("server.env").then("serve env $(cat server.env) rollhook-server"),
            on(Elsewhere),
            on(Cluster).then("kubectl get deployment api -n shop-test -o yaml | grep 'image: registry.example.com/api:v2'"),
            on(Server),
        ],
    ),
    page(
        "docs/keyless.md",
        &[on(Server).given(
            "rollhook login $URL --token-file admin-token
            rollhook app create api -p shop -e prod --image registry.example.com/api:v1 --settle 0s --wait",
        )],
    ),
    page("docs/metrics.md", &[on(Server)]),
    page(
        "docs/notifications.md",
        &[
            on(Server).given("rollhook login $URL --token-file admin-token"),
            on(Server),
            on(Server).given("echo xoxb-secret > slack-bot-token"),
            on(Server).given("echo ghp_secret > github-token"),
            on(Server).given("echo glpat-secret > gitlab-token").then("test $(rollhook receiver list | tail -n +2 | wc -l) = 5"),
        ],
    ),
    page(
        "docs/one-machine.md",
        &[
            on(Docker)
                .given(
                    "mkdir -p root/usr/local/bin root/etc/systemd/system root/var/lib/rollhook
                    cp bin/rollhook bin/rollhook-server .",
                )
                .then("test -x root/usr/local/bin/rollhook-server; test -f root/etc/systemd/system/rollhook-server.service"),
            on(Docker)
                .given(
                    "image v1; image v2
                    docker run -d --name web --network $NETWORK $REGISTRY/shop/web:v1
                    serve rollhook-server --driver docker
                    cp .local/share/rollhook/admin-token root/var/lib/rollhook/",
                )
                .then("rollhook app history web | grep 'shop/web:v1.*(current)'"),
            on(Docker).given("without_app").then("docker inspect web | grep '\"MODE=production\"'"),
            on(Docker).then("docker inspect web | grep '\"Memory\": 1073741824'"),
            on(Docker).then("rollhook app history web | grep 'shop/web:v2.*(current)'"),
            on(Docker).then("rollhook app history web | grep 'shop/web:v1.*rollback.*(current)'"),
            on(Docker)
                .given("mkdir root/etc/rollhook; echo hunter2 > registry-token")
                .then("test $(stat -c %G:%a root/etc/rollhook/docker/config.json) = docker:640"),
            on(Docker).then("docker inspect worker | grep bin/jobs; rollhook app show store | grep 'container/worker (bin/jobs)'"),
            on(Docker)
                .given(
                    "rollhook app delete store --yes; docker rm -f store worker
                    fails rollhook app create store --image $REGISTRY/shop/web:v1 --workload container/store \
                      --workload +container/worker --command worker=bin/wrong --network $NETWORK --port 8080 \
                      --readiness-path /healthz --wait",
                )
                .then(
                    "docker inspect worker | grep bin/jobs
                    rollhook app history store | grep '^2 .*config.*(current)'
                    test $(docker ps -aq --filter name=worker | wc -l) = 1",
                ),
            on(Docker).given("without_app").then("rollhook app wait web; docker images shop/web | grep shop/web"),
            on(Docker).then("docker inspect shop | grep '\"8081-8082\"'"),
        ],
    ),
    page(
        "docs/releases.md",
        &[on(Server)
            .given(
                "rollhook login $URL --token-file admin-token --project shop --environment test
                rollhook app create api --image registry.example.com/shop/api:1.0.0 --settle 0s --wait",
            )
            .then(
                "rollhook app build-logs api --release | grep 'bin/rails db:migrate'
                rollhook app history api -o wide | grep done
                fails rollhook app rollback api
                rollhook app rollback api --yes --wait",
            ),
        on(Server)
            .given("rollhook app create backoffice --image registry.example.com/shop/backoffice:1.0.0 --settle 0s --wait")
            .then("rollhook app show backoffice | grep orders"),
        on(Cluster)
            .given(
                "kubectl create namespace whole-live
                for name in web worker; do
                  kubectl create deployment $name --image registry.example.com/shop/api:1.0.0 --namespace whole-live
                done
                kubectl create cronjob nightly --image registry.example.com/shop/api:1.0.0 --schedule '0 3 * * *' --namespace whole-live
                serve_cluster
                rollhook login $URL --token-file admin-token --project whole --environment live",
            )
            .then(
                "rollhook app deploy api registry.example.com/shop/api:1.1.0 --wait
                rollhook app show api | grep 'CronJob/nightly at 2'",
            ),
        on(Cluster),
        on(Cluster)
            .given("rollhook login $URL --token-file admin-token --project store --environment live")
            .then(
                "rollhook app deploy store registry.example.com/store:1.1.0 --wait
                rollhook app show store | grep 'CronJob/cleanup at 2'
                rollhook app history store -o wide | grep done",
            )],
    ),
    page(
        "docs/report.md",
        &[on(Server)
            .given(
                "rollhook login $URL --token-file admin-token
                rollhook app create api -p shop -e prod --image registry.example.com/shop/api:1.0.0 --settle 0s --wait",
            )
            .then(
                "rollhook activity | grep 'shop .*prod .*api'
                grep '^shop,prod,' delivery.csv",
            )],
    ),
    page("docs/runbook/builds-waiting.md", &[on(Cluster).given(RUNBOOK)]),
    page(
        "docs/runbook/deploy-failed.md",
        &[on(Server).given(
            "rollhook login $URL --token-file admin-token
            rollhook app create api -p shop -e test --image registry.example.com/api:v1 --settle 0s --wait
            for tag in 2 3 4 5 6; do rollhook app deploy api -p shop -e test registry.example.com/api:v$tag --wait; done
            fails rollhook app deploy api -p shop -e test registry.example.com/api:missing --wait",
        )
        .around(&["rollhook app rollback APP -p shop -e test"])],
    ),
    page(
        "docs/runbook/deploy-stuck.md",
        &[on(Server).given(
            "rollhook login $URL --token-file admin-token
            rollhook app create api -p shop -e test --image registry.example.com/api:v1 --settle 0s --wait
            for tag in 2 3 4 5 6; do rollhook app deploy api -p shop -e test registry.example.com/api:v$tag --wait; done
            rollhook app deploy api -p shop -e test registry.example.com/api:hang",
        )
        .around(&["rollhook app cancel api -p shop -e test --revision 7"])],
    ),
    page("docs/runbook/degraded.md", &[on(Cluster).given(RUNBOOK)]),
    page("docs/runbook/disk-full.md", &[on(Docker), on(Docker)]),
    page("docs/runbook/down.md", &[on(Cluster).given(RUNBOOK)]),
    page(
        "docs/runbook/drift.md",
        &[on(Cluster).given(RUNBOOK).around(&["rollhook app deploy api IMAGE -p shop -e test"])],
    ),
    page(
        "docs/runbook/driver-failing.md",
        &[on(Cluster)
            .given(RUNBOOK)
            .around(&["rollhook-server manifests --app-namespace shop-test | kubectl apply -f -"])],
    ),
    page("docs/runbook/engine-stuck.md", &[on(Cluster).given(RUNBOOK)]),
    page(
        "docs/runbook/key-old.md",
        &[
            on(Server).given(
                "rollhook login $URL --token-file admin-token --project shop --environment test
                rollhook app create api --image registry.example.com/api:v1
                rollhook app webhook enable api
                token=$(rollhook app webhook status api --token)
                cd $DATA",
            ),
            on(Server).then(
                "test $(ls keys | wc -l) = 2
                test $(rollhook app webhook status api --token) = $token",
            ),
        ],
    ),
    page("docs/runbook/replica-missing.md", &[on(Cluster).given(RUNBOOK)]),
    page("docs/runbook/store-away.md", &[on(Cluster).given(RUNBOOK).around(&["kubectl get crd | grep rollhook"])]),
    page("docs/runbook/webhook-failing.md", &[on(Cluster).given(RUNBOOK)]),
    page("docs/running.md", &[
            on(Server),
            on(Bare),
            on(Elsewhere),
            on(Bare).around(&["kubectl config set-context --current --namespace rollhook"]),
        ]),
];
