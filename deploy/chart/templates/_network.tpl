{{- define "counterpoint.network-port" -}}
- port: {{ . | int }}
  protocol: TCP
{{- end -}}

{{- /* Whether an engine is part of this installation: (list $ "valkey"). */ -}}
{{- define "counterpoint.has-engine" -}}
{{- $root := index . 0 -}}
{{- $engine := index . 1 -}}
{{- if or (eq $engine "nats") (eq $engine "postgres") (and (eq $engine "valkey") $root.Values.valkey.enabled) (and (eq $engine "qdrant") $root.Values.qdrant.enabled) -}}
true
{{- end -}}
{{- end -}}

{{- /* The rule for one target of a service or job: (list $ "router" "nats"). */ -}}
{{- define "counterpoint.egress" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $target := index . 2 -}}
{{- $values := $root.Values.networkPolicy -}}
{{- if contains "." $target -}}
{{- $service := (splitList "." $target | first) -}}
{{- $port := (splitList "." $target | last) -}}
- to:
    - podSelector:
        matchLabels:
          {{- include "counterpoint.selector" (list $root $service) | nindent 10 }}
  ports:
    {{- include "counterpoint.network-port" (include "counterpoint.port" (list $root $service $port)) | nindent 4 }}
{{- else if eq $target "outside" -}}
{{- $outside := index $values.outside $name -}}
{{- if $outside.peers -}}
- to:
    {{- toYaml $outside.peers | nindent 4 }}
  ports:
    {{- range $outside.ports }}
    {{- include "counterpoint.network-port" . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- else if include "counterpoint.has-engine" (list $root $target) -}}
{{- $engine := index $values.engines $target -}}
- to:
    {{- toYaml $engine.peers | nindent 4 }}
  ports:
    {{- include "counterpoint.network-port" $engine.port | nindent 4 }}
{{- end -}}
{{- end -}}

{{- /* The rule for one port of a service, from all who may connect to it: (list $ "router" "http"). */ -}}
{{- define "counterpoint.ingress" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $port := index . 2 -}}
{{- $peers := list -}}
{{- range $from, $targets := (include "counterpoint.house" $root | fromYaml).network -}}
{{- if has (printf "%s.%s" $name $port) $targets -}}
{{- if or (eq $from "clients") (eq $from "metrics") -}}
{{- $peers = concat $peers (index $root.Values.networkPolicy $from) -}}
{{- else -}}
{{- $peers = append $peers (dict "podSelector" (dict "matchLabels" (include "counterpoint.selector" (list $root $from) | fromYaml))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $peers -}}
- from:
    {{- toYaml $peers | nindent 4 }}
  ports:
    {{- include "counterpoint.network-port" (include "counterpoint.port" (list $root $name $port)) | nindent 4 }}
{{- end -}}
{{- end -}}
