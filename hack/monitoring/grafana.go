package main

// object is a JSON object of Grafana's.
type object = map[string]any

// identity is the UID of the first dashboard and the beginning of the others': links refer to it.
const identity = "machine-controller-fleet"

// source of data that the user selects.
func selected() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// grafana returns the dashboard as Grafana imports it.
func (d dashboard) grafana() object {
	return object{
		"title": "Machine controller fleet: " + d.Title, "uid": identity + "-" + d.File, "tags": []string{identity},
		"schemaVersion": 39, "editable": true, "refresh": "30s",
		"time": object{"from": "now-3h", "to": "now"},
		// Links to the others, with the same time and variables.
		"links": []object{{
			"type": "dashboards", "title": "Fleet", "tags": []string{identity}, "asDropdown": true, "includeVars": true, "keepTime": true,
		}},
		"templating": object{"list": d.variables()},
		"panels":     d.panels(),
	}
}

// variables returns the selections of a user. Series about the fleet have the namespace that it
// runs in.
func (d dashboard) variables() []object {
	variable := func(name, label, query string) object {
		return object{
			"name": name, "label": label, "type": "query", "datasource": selected(), "refresh": 2, "sort": 1,
			"query": object{"query": query, "refId": name},
		}
	}
	all := []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
		variable("namespace", "Namespace of the fleet", "label_values(mcf_owned_slots, namespace)"),
		variable("job", "Fleet", `label_values(mcf_owned_slots{namespace="$namespace"}, job)`),
	}
	if d.Tenant {
		all = append(all, variable("tenant", "Namespace of the machines", `label_values(mcm_machine_set_info{job="$job"}, namespace)`))
	}
	return all
}

// panels places the panels: those of a row one after the other, and in a new line where one does
// not fit.
func (d dashboard) panels() []object {
	var all []object
	id, y := 0, 0
	place := func(panel object, x, y, width, height int) {
		id++
		panel["id"], panel["gridPos"] = id, object{"x": x, "y": y, "w": width, "h": height}
		all = append(all, panel)
	}
	for _, r := range d.Rows {
		place(object{"type": "row", "title": r.Title, "collapsed": false, "panels": []object{}}, 0, y, columns, rowHeight)
		y += rowHeight
		x, height := 0, 0
		for _, p := range r.Panels {
			if x+p.width() > columns || height > 0 && p.height() != height {
				x, y = 0, y+height
			}
			place(p.grafana(), x, y, p.width(), p.height())
			x, height = x+p.width(), p.height()
		}
		y += height
	}
	return all
}

// grafana returns the panel without its place.
func (p panel) grafana() object {
	unit := p.Unit
	if unit == "" {
		unit = "short"
	}
	defaults := object{"unit": unit, "min": 0}
	panel := object{
		"title": p.Title, "description": p.Shows, "datasource": selected(), "targets": p.targets(),
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	switch p.kind() {
	case stat:
		panel["type"] = "stat"
		panel["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "background"}
		defaults["thresholds"] = p.thresholds()
	case table:
		panel["type"] = "table"
		panel["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true}}}}
	case graph:
		panel["type"] = "timeseries"
		panel["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi"}}
		if p.Stacked {
			defaults["custom"] = object{"fillOpacity": 30, "stacking": object{"mode": "normal"}}
		}
	}
	return panel
}

// thresholds are the colors of a stat.
func (p panel) thresholds() object {
	first, steps := "green", []object{}
	switch {
	case p.From != nil:
		steps = append(steps, object{"color": "red", "value": *p.From})
	case p.Below != nil:
		first, steps = "red", append(steps, object{"color": "green", "value": *p.Below})
	}
	return object{"mode": "absolute", "steps": append([]object{{"color": first, "value": nil}}, steps...)}
}

// targets are the queries. A table has one row for each series, of this moment alone.
func (p panel) targets() []object {
	var all []object
	for i, q := range p.Queries {
		target := object{
			"datasource": selected(), "expr": selections().Replace(q.Expr), "legendFormat": q.Legend, "refId": string(rune('A' + i)),
		}
		if p.kind() == table {
			target["format"], target["instant"] = "table", true
		}
		all = append(all, target)
	}
	return all
}
