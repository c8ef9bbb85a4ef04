{{- /* A value of a setting as the environment has it. Large numbers are floats here and must not become 1e+09. */ -}}
{{- define "counterpoint.value" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else if or (kindIs "map" .) (kindIs "slice" .) -}}
{{- toJson . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{- define "counterpoint.variable" -}}
- name: {{ index . 0 }}
  value: {{ index . 1 | quote }}
{{- end -}}

{{- /* The keys of its Secret that a service or job needs, and those that it may have: (list $ "router"). Those named like
variables are read from files of these names. */ -}}
{{- define "counterpoint.secret-keys" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $values := $root.Values -}}
{{- $used := dict "COUNTERPOINT_NATS_PASSWORD" (eq $values.nats.login "password") "COUNTERPOINT_VALKEY_URL" $values.valkey.enabled "COUNTERPOINT_QDRANT_URL" $values.qdrant.enabled -}}
{{- $absent := list -}}
{{- if not $values.qdrant.enabled }}{{ $absent = append $absent "COUNTERPOINT_QDRANT_API_KEY" }}{{ end -}}
{{- $needed := list -}}
{{- $optional := list -}}
{{- range $variable, $required := index (include "counterpoint.house" $root | fromYaml).secrets $name -}}
{{- if hasKey $used $variable -}}
{{- if index $used $variable }}{{ $needed = append $needed $variable }}{{ end -}}
{{- else if $required -}}
{{- $needed = append $needed $variable -}}
{{- else if not (has $variable $absent) -}}
{{- $optional = append $optional $variable -}}
{{- end -}}
{{- if and (eq $variable "COUNTERPOINT_NATS_PASSWORD") (not $values.nats.certificatePrefix) -}}
{{- $needed = concat $needed (values (index (include "counterpoint.login-files" $root | fromYaml) $values.nats.login) | sortAlpha) -}}
{{- end -}}
{{- end -}}
{{- dict "needed" $needed "optional" $optional | toYaml -}}
{{- end -}}

{{- /* By the kind of login, the variables that name files, and the keys of the Secret that has them. */ -}}
{{- define "counterpoint.login-files" -}}
password: {}
creds: {COUNTERPOINT_NATS_CREDS: nats.creds}
certificate: {COUNTERPOINT_NATS_CERT: nats.crt, COUNTERPOINT_NATS_KEY: nats.key}
{{- end -}}

{{- /* The login on the bus without its password: (list $ "router" "USER"). */ -}}
{{- define "counterpoint.bus" -}}
{{- $root := index . 0 -}}
{{- include "counterpoint.variable" (list "COUNTERPOINT_NATS_URL" $root.Values.nats.url) }}
{{ include "counterpoint.variable" (list "COUNTERPOINT_NATS_USER" (index . 1)) }}
{{- if $root.Values.nats.ca.secret }}
{{ include "counterpoint.variable" (list "COUNTERPOINT_NATS_CA" "/etc/counterpoint/nats/ca.crt") }}
{{- end }}
{{- range $variable, $file := index (include "counterpoint.login-files" $root | fromYaml) $root.Values.nats.login }}
{{ include "counterpoint.variable" (list $variable (printf "/etc/counterpoint/secrets/%s" $file)) }}
{{- end }}
{{- end -}}

{{- /* What only this service has, and its values do not set: (list $ "router"). */ -}}
{{- define "counterpoint.own-variables" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $own := index $root.Values $name -}}
{{- $gateway := printf "http://%s-manager:%s" (include "counterpoint.fullname" $root) (include "counterpoint.port" (list $root "manager" "gateway")) -}}
{{- $made := dict -}}
{{- if eq $name "router" -}}
{{- $made = dict "HTTP_HOST" "0.0.0.0" "HTTP_PORT" (include "counterpoint.port" (list $root $name "http")) "GATEWAY_URL" $gateway -}}
{{- if $own.files.hooks }}{{ $_ := set $made "HOOKS_FILE" (printf "/etc/counterpoint/files/%s" $own.files.hooks) }}{{ end -}}
{{- if $own.files.notify }}{{ $_ := set $made "NOTIFY_FILE" (printf "/etc/counterpoint/files/%s" $own.files.notify) }}{{ end -}}
{{- if $own.files.issues }}{{ $_ := set $made "ISSUES_FILE" (printf "/etc/counterpoint/files/%s" $own.files.issues) }}{{ end -}}
{{- else if eq $name "lineage" -}}
{{- $made = dict "LINEAGE_HOST" "0.0.0.0" "LINEAGE_PORT" (include "counterpoint.port" (list $root $name "http")) -}}
{{- else if eq $name "manager" -}}
{{- $made = dict "GATEWAY_HOST" "0.0.0.0" "GATEWAY_PORT" (include "counterpoint.port" (list $root $name "gateway")) -}}
{{- else if eq $name "developer" -}}
{{- $made = dict "GATEWAY_URL" $gateway -}}
{{- else if eq $name "memory" -}}
{{- $made = dict "GATEWAY_URL" $gateway "DATA_DIR" "/data" "AUDIT_DIR" "/audit" "MODEL_CACHE_DIR" "/data/models" -}}
{{- end -}}
{{- if (index $own "tls" | default dict).secret -}}
{{- $_ := set $made "TLS_CERT" "/etc/counterpoint/tls/tls.crt" -}}
{{- $_ := set $made "TLS_KEY" "/etc/counterpoint/tls/tls.key" -}}
{{- end -}}
{{- range $variable, $value := $made }}
{{ include "counterpoint.variable" (list (printf "COUNTERPOINT_%s" $variable) $value) }}
{{- end }}
{{- end -}}

{{- /* The settings of a service: what it reads of `settings`, then its own: (list $ "router"). */ -}}
{{- define "counterpoint.settings" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $own := index $root.Values $name -}}
{{- $known := index (include "counterpoint.house" $root | fromYaml).settings $name -}}
{{- $given := dict -}}
{{- if and (eq $name "router") $own.url -}}
{{- $_ := set $given "COUNTERPOINT_MCP_URL" (printf "%s/mcp" (trimSuffix "/" $own.url)) -}}
{{- $_ := set $given "COUNTERPOINT_CONSOLE_URL" (trimSuffix "/" $own.url) -}}
{{- $service := printf "%s-router" (include "counterpoint.fullname" $root) -}}
{{- $inside := printf "%s.%s" $service $root.Release.Namespace -}}
{{- $hosts := list (include "counterpoint.host" $own.url) $service $inside (printf "%s.svc" $inside) -}}
{{- $_ := set $given "COUNTERPOINT_MCP_HOSTS" $hosts -}}
{{- end -}}
{{- range $variable, $value := $root.Values.settings -}}
{{- if has $variable $known }}{{ $_ := set $given $variable $value }}{{ end -}}
{{- end -}}
{{- range $variable, $value := $own.settings }}{{ $_ := set $given $variable $value }}{{ end -}}
{{- range $variable, $value := $given }}
{{ include "counterpoint.variable" (list $variable (include "counterpoint.value" $value)) }}
{{- end }}
{{- end -}}

{{- /* The whole environment of a service: (list $ "router"). */ -}}
{{- define "counterpoint.environment" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- include "counterpoint.bus" (list $root $name) }}
{{ include "counterpoint.variable" (list "COUNTERPOINT_HEALTH_HOST" "0.0.0.0") }}
{{ include "counterpoint.variable" (list "COUNTERPOINT_HEALTH_PORT" (include "counterpoint.port" (list $root $name "health"))) }}
{{- include "counterpoint.own-variables" . }}
{{- include "counterpoint.settings" . }}
{{ include "counterpoint.variable" (list "COUNTERPOINT_SECRETS_DIR" "/etc/counterpoint/secrets") }}
{{- if and (eq $name "manager") $root.Values.manager.providers.secret }}
{{- range $root.Values.manager.providers.keys }}
- name: {{ . | quote }}
  valueFrom:
    secretKeyRef:
      name: {{ $root.Values.manager.providers.secret | quote }}
      key: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}
