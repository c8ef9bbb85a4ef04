select sum(cast(amount as integer)) as revenue from {{ ref('stg_orders') }}
