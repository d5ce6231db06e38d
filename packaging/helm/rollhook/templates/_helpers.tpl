{{- define "rollhook.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rollhook.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rollhook.labels" -}}
{{ include "rollhook.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "rollhook.serviceAccount" -}}
{{- default (include "rollhook.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "rollhook.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rollhook.baseUrl" -}}
{{- if .Values.baseUrl -}}
{{- .Values.baseUrl -}}
{{- else if .Values.ingress.enabled -}}
{{- printf "%s://%s%s" (ternary "https" "http" (ne .Values.ingress.tlsSecret "")) .Values.ingress.host (trimSuffix "/" .Values.ingress.path) -}}
{{- else if and .Values.httpRoute.enabled .Values.httpRoute.hostnames -}}
{{- printf "https://%s" (first .Values.httpRoute.hostnames) -}}
{{- else -}}
{{- $port := ternary "" (printf ":%v" .Values.service.port) (eq (int .Values.service.port) 80) -}}
{{- printf "http://%s.%s.svc%s" (include "rollhook.fullname" .) .Release.Namespace $port -}}
{{- end -}}
{{- end -}}

{{- /* What the server's code says of permissions and connections: generated/access.yaml. */ -}}
{{- define "rollhook.access" -}}
{{- .Files.Get "generated/access.yaml" -}}
{{- end -}}

{{- /* The rules of a part for the driver, and for the store if that is the cluster. */ -}}
{{- define "rollhook.rules" -}}
{{- $rules := .rules.driver -}}
{{- if eq .root.Values.store.type "kubernetes" -}}
{{- $rules = concat $rules .rules.store -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end -}}

{{- /* Egress to the cluster's name servers, and to these ports. */ -}}
{{- define "rollhook.egress" -}}
{{- $egress := (include "rollhook.access" .root | fromYaml).egress -}}
{{- $ports := list -}}
{{- range .ports | uniq -}}
{{- $ports = append $ports (dict "port" (int .) "protocol" "TCP") -}}
{{- end -}}
{{- toYaml (list $egress.names (dict "ports" $ports "to" $egress.anywhere)) -}}
{{- end -}}

{{- define "rollhook.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "rollhook.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* Refuses values that fit the schema and cannot work. */ -}}
{{- define "rollhook.validate" -}}
{{- with .Values -}}
{{- if and (eq .store.type "postgres") (not .store.postgres.existingSecret) -}}
{{- fail "store.postgres.existingSecret: name the Secret that holds the database's URL, or set store.type to kubernetes" -}}
{{- end -}}
{{- if and .ingress.enabled (not .ingress.host) -}}
{{- fail "ingress.host: name the host at which the ingress takes calls" -}}
{{- end -}}
{{- if and .httpRoute.enabled (not .httpRoute.parentRefs) -}}
{{- fail "httpRoute.parentRefs: name the gateway that the route belongs to" -}}
{{- end -}}
{{- if and (or .ingress.enabled .httpRoute.enabled) (not .trustedProxies) -}}
{{- fail "trustedProxies: name the networks of the ingress's or gateway's pods: else all callers have its address, and share their limits" -}}
{{- end -}}
{{- if and .serviceMonitor.enabled .networkPolicy.enabled (not .networkPolicy.metricsFrom) -}}
{{- fail "networkPolicy.metricsFrom: name Prometheus' pods, which read the metrics of serviceMonitor" -}}
{{- end -}}
{{- if and .rbac.clusterWide .appNamespaces -}}
{{- fail "appNamespaces: leave it empty with rbac.clusterWide, which covers every namespace" -}}
{{- end -}}
{{- if has $.Release.Namespace .appNamespaces -}}
{{- fail (printf "appNamespaces: %s is the server's own namespace, where apps could read its keys" $.Release.Namespace) -}}
{{- end -}}
{{- if .builds.enabled -}}
{{- if not .builds.image -}}
{{- fail "builds.image: name the builder's image by its digest, REPOSITORY@sha256:…" -}}
{{- end -}}
{{- if or (eq .builds.namespace $.Release.Namespace) (has .builds.namespace .appNamespaces) -}}
{{- fail (printf "builds.namespace: %s is the server's own or an app's; builds need one to themselves, which their policies close" .builds.namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
