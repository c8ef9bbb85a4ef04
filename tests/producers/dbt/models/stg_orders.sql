select 1 as order_id, '{{ var("amount", "12") }}' as amount
